"""`tollbar artifacts list` and `get`. Names come from the evaluated run, so they are checked before any is written."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tollbar.cli.exits import Exit
from tollbar.cli.lists import FIRST_PAGE, Pages, show_list
from tollbar.cli.output import Column, Kind, Output
from tollbar.cli.problems import Incomplete, NotFoundHere, Usage
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import size
from tollbar.cli.trials import TrialId
from tollbar.client.errors import DownloadDamaged
from tollbar.client.schemas import Artifact
from tollbar.kit.text import printable

if TYPE_CHECKING:
    from tollbar.client import Client

_STDOUT: Final = Path("-")
_PAGE: Final = 100
_DRIVE: Final = re.compile(r"[A-Za-z]:")

_ARTIFACTS: Final = (
    Column[Artifact]("ARTIFACT", lambda item: item["artifact_id"], Kind.WHOLE),
    Column[Artifact]("NAME", lambda item: item["name"]),
    Column[Artifact]("KIND", lambda item: item["kind"]),
    Column[Artifact]("TYPE", lambda item: item["media_type"]),
    Column[Artifact]("SIZE", lambda item: size(item["size"])),
    Column[Artifact]("STATE", lambda item: item["state"]),
)


def list_artifacts(trial: TrialId, /, *, pages: Pages = FIRST_PAGE, options: Global = NO_OPTIONS) -> None:
    """List what a Trial left behind, by name; untrusted.

    Example: tollbar artifacts list trial_01KDC4P3A1B2C3D4E5F6G7H8J9
    """
    session = Session(options)
    with session.client() as client:
        show_list(
            session.out, pages, lambda limit, cursor: client.artifacts(trial, limit=limit, cursor=cursor), _ARTIFACTS
        )


def get_artifacts(
    trial: TrialId,
    artifact: Annotated[str | None, Parameter(help="The artifact's id, art_..., or its name.")] = None,
    /,
    *,
    all_: Annotated[bool, Parameter(name="--all", negative="", show_default=False, help="Get every artifact.")] = False,
    to: Annotated[
        Path | None,
        Parameter(
            name=["--to", "-o"], allow_leading_hyphen=True, help="File (with --all: folder) to write; - is stdout."
        ),
    ] = None,
    force: Annotated[
        bool, Parameter(negative="", show_default=False, help="Replace files; write raw bytes to a terminal.")
    ] = False,
    options: Global = NO_OPTIONS,
) -> int:
    """Get artifacts; size and SHA-256 are verified, and a file is written whole or not at all.

    Example: tollbar artifacts get trial_01KDC4P3A1B2C3D4E5F6G7H8J9 --all -o ./out
    """
    session = Session(options)
    if all_ == (artifact is not None):
        raise Usage("name one artifact, or give --all")
    if to == _STDOUT:
        _check_stdout(session.out, all_=all_, force=force)
    elif to is not None and str(to).startswith("-"):
        raise Usage(f"-o needs a file, and {to} is an option", fix=f"a file of that name: -o ./{to}")
    with session.client() as client:
        listed = _all(client, trial)
        if artifact is None:
            return _get_all(client, session.out, trial, listed, to or Path(trial), force=force)
        found = _one(listed, artifact, trial)
        if to == _STDOUT:
            sys.stdout.flush()
            client.copy_artifact(trial, found, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return Exit.DONE
        path = to if to is not None else Path(_checked_name(found["name"]).name)
        _save(client, trial, found, path, force=force)
    _report(session.out, [_saved(found, path)], [])
    return Exit.DONE


def _check_stdout(out: Output, *, all_: bool, force: bool) -> None:
    if all_:
        raise Usage("--all writes files, so it does not go with -o -")
    if out.is_json:
        raise Usage("-o - writes the raw bytes, so it does not go with --json")
    if sys.stdout.isatty() and not force:
        raise Usage("raw bytes of an evaluated run can take over a terminal", fix="write a file: -o FILE, or --force")


def _all(client: Client, trial: str) -> list[Artifact]:
    from tollbar.client import every

    return list(every(lambda cursor: client.artifacts(trial, limit=_PAGE, cursor=cursor)))


def _one(listed: Sequence[Artifact], wanted: str, trial: str) -> Artifact:
    for item in listed:
        if wanted in {item["artifact_id"], item["name"]}:
            if item["upload_state"] != "uploaded":
                raise Incomplete(f"{wanted} was not written by the Trial ({item['state']})")
            return item
    raise NotFoundHere(f"{trial} has no artifact {wanted}", fix=f"list them: tollbar artifacts list {trial}")


def _get_all(client: Client, out: Output, trial: str, listed: Sequence[Artifact], folder: Path, *, force: bool) -> int:
    """Writes every artifact that exists below `folder`; what is missing is listed, and makes the exit code 1."""
    names = {item["artifact_id"]: _checked_name(item["name"]) for item in listed}
    saved: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for item in listed:
        if item["upload_state"] != "uploaded":
            missing.append({"artifact_id": item["artifact_id"], "name": item["name"], "problem": item["state"]})
            continue
        path = folder / names[item["artifact_id"]]
        out.progress(f"{item['name']} ({size(item['size'])})")
        try:
            _save(client, trial, item, path, force=force)
        except (DownloadDamaged, Usage) as error:
            missing.append({"artifact_id": item["artifact_id"], "name": item["name"], "problem": error.message})
        else:
            saved.append(_saved(item, path))
    out.settle()
    _report(out, saved, missing)
    for item in missing:
        out.note(f"missing: {item['name']}: {item['problem']}")
    return Exit.FAILED if missing else Exit.DONE


def _save(client: Client, trial: str, artifact: Artifact, path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise Usage(f"{path} is a folder", fix="name a file: -o FILE")
    if path.exists() and not force:
        raise Usage(f"{path} exists already", fix="replace it: --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        client.save_artifact(trial, artifact, path)
    except OSError as error:
        raise Usage(f"{path} cannot be written", why=[str(error.strerror)]) from None


def _saved(artifact: Artifact, path: Path) -> dict[str, Any]:
    return {**artifact, "path": str(path)}


def _report(out: Output, saved: Sequence[dict[str, Any]], missing: Sequence[dict[str, Any]]) -> None:
    columns = (
        Column[dict[str, Any]]("PATH", lambda item: item["path"], Kind.WHOLE),
        Column[dict[str, Any]]("SIZE", lambda item: size(item["size"])),
        Column[dict[str, Any]]("SHA256", lambda item: item["sha256"]),
    )
    if out.is_json:
        out.document({"items": list(saved), "missing": list(missing), "next_cursor": None})
    else:
        out.rows(saved, columns)


def _checked_name(name: str) -> PurePosixPath:
    """Returns an artifact's name as a path that stays below its folder; anything else is refused before writing."""
    parts = name.split("/")
    bad = any(part in {"", ".", ".."} for part in parts) or "\\" in name or _DRIVE.match(name) is not None
    if bad or printable(name) != name or "\n" in name or "\t" in name:
        raise Incomplete(f"the server lists an artifact with an unsafe name: {name}", why=["nothing was written"])
    return PurePosixPath(name)
