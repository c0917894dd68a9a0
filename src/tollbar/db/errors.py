"""What can go wrong before there is a database to talk to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tollbar.kit.errors import TollbarError


class DataDirectoryHeld(TollbarError):
    """Another process owns the data directory; `pid` and `url` name it as far as it has said who it is."""

    code = "DATA_DIRECTORY_HELD"
    status = 409

    def __init__(self, data_dir: Path, pid: int | None, url: str | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        where = "" if url is None else f", the server at {url}"
        super().__init__(
            f"The data directory {data_dir} is in use by {who}{where}.",
            hint="Use that server, stop it, or choose another data directory (--data-dir).",
            data_dir=str(data_dir),
            pid=pid,
            url=url,
        )


class EmbeddedDatabaseFailed(TollbarError):
    """The embedded PostgreSQL did not start; the message ends with the last lines of its log."""

    code = "EMBEDDED_DATABASE_FAILED"
    status = 503

    def __init__(self, problem: str, *, log: Path | None = None, log_end: str = "", hint: str | None = None) -> None:
        text = f"The embedded database did not start: {problem}."
        if log_end:
            text += f" The end of {log}:\n{log_end}"
        super().__init__(text, hint=hint)


class EmbeddedDatabaseRefused(EmbeddedDatabaseFailed):
    """This machine does not let this user run PostgreSQL; the hint names the three ways out."""

    code = "EMBEDDED_DATABASE_REFUSED"

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem,
            hint=(
                "Run tollbar as an ordinary user, or set TOLLBAR_PG_UID to the uid that shall run the embedded "
                "database, or set TOLLBAR_DATABASE_URL to a PostgreSQL of your own."
            ),
        )


class DatabaseUnreachable(TollbarError):
    """The database does not answer or refuses the connection; the URL's password is never shown."""

    code = "DATABASE_UNREACHABLE"
    status = 503

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"The database {where} cannot be used: {problem}",
            hint="Check that it runs and that TOLLBAR_DATABASE_URL names it.",
        )


class DatabaseTooNew(TollbarError):
    """The database was migrated by a newer tollbar; this one would not understand its tables."""

    code = "DATABASE_TOO_NEW"
    status = 409

    def __init__(self, current: str, head: str) -> None:
        super().__init__(
            f"The database is at revision {current}, which this version of tollbar does not know; "
            f"its newest is {head}.",
            hint="Start the newer version of tollbar again, or restore a backup from before its migration.",
            current=current,
            head=head,
        )


class DatabaseBehind(TollbarError):
    """The database has not the tables of this tollbar yet; a server or worker never migrates by itself."""

    code = "DATABASE_BEHIND"
    status = 409

    def __init__(self, current: str | None, head: str) -> None:
        where = "has no tables of tollbar yet" if current is None else f"is at revision {current}"
        super().__init__(
            f"The database {where}; this version of tollbar needs revision {head}.",
            hint="Bring it up to date: tollbar migrate",
            current=current,
            head=head,
        )


class NoDatabase(TollbarError):
    """A server or worker was started without a database to join."""

    code = "NO_DATABASE"
    status = 409

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"There is no database to join: TOLLBAR_DATABASE_URL is not set, and no server runs on {data_dir}.",
            hint="Set TOLLBAR_DATABASE_URL to the PostgreSQL of the installation, or start both in one: tollbar up",
            data_dir=str(data_dir),
        )


class DatabaseOwnerEnded(TollbarError):
    """The server whose embedded database this process used has ended, and the database with it."""

    code = "DATABASE_OWNER_ENDED"
    status = 503

    def __init__(self, data_dir: Path, pid: int) -> None:
        super().__init__(
            f"The server on {data_dir} (process {pid}), whose database this process used, has ended.",
            hint="Start it again, then this process.",
        )


class DatabaseTooOld(TollbarError):
    """The server is of an older PostgreSQL than the one that a backup was made with."""

    code = "DATABASE_TOO_OLD"
    status = 409

    def __init__(self, server: int, needed: int) -> None:
        super().__init__(
            f"The database server is PostgreSQL {server}; the backup was made with {needed}.",
            hint=f"Restore to a server of PostgreSQL {needed} or newer, or to the embedded one.",
            server=server,
            needed=needed,
        )


class DatabaseToolMissing(TollbarError):
    """No client program of PostgreSQL here fits the server's version."""

    code = "DATABASE_TOOL_MISSING"
    status = 503

    def __init__(self, program: str, needed: str, known: Sequence[int]) -> None:
        have = f"here is {', '.join(str(major) for major in known)}" if known else "none is here"
        super().__init__(
            f"This needs {program} of PostgreSQL {needed}; {have}.",
            hint=f"Install PostgreSQL's client programs of that version, so that {program} is on the PATH.",
            program=program,
        )


class DatabaseToolFailed(TollbarError):
    """A client program of PostgreSQL ended with an error; the message ends with what it said."""

    code = "DATABASE_TOOL_FAILED"
    status = 503

    def __init__(self, program: str, returncode: int, said: str) -> None:
        super().__init__(f"{program} ended with status {returncode}: {said or 'it said nothing'}", program=program)


class UpgradeIncomplete(TollbarError):
    """The new files of the database do not hold what the old ones do; the old ones are still in their place."""

    code = "UPGRADE_INCOMPLETE"
    status = 500

    def __init__(self) -> None:
        super().__init__("The restored database has other rows than the old one; nothing was changed.")


class RestoreTargetNotEmpty(TollbarError):
    """A backup is restored into an empty place only: nothing that is there is ever overwritten."""

    code = "RESTORE_TARGET_NOT_EMPTY"
    status = 409

    def __init__(self, found: str) -> None:
        super().__init__(
            f"A backup is restored into an empty place only: {found}.",
            hint="Choose another --data-dir or another database, or remove what is there yourself.",
        )
