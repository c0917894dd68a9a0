"""What there is to measure with: runners, profiles; and who the key is."""

from __future__ import annotations

from typing import Final

from tollbar.cli.lists import FIRST_PAGE, Pages, show_list
from tollbar.cli.output import Column, Kind
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.client.schemas import Profile, Runner

_RUNNERS: Final = (
    Column[Runner]("NAME", lambda item: item["name"], Kind.WHOLE),
    Column[Runner]("LABEL", lambda item: item["source_ref"]),
    Column[Runner]("REVISION", lambda item: item["revision"][:12]),
    Column[Runner]("BACKEND", lambda item: item.get("backend")),
    Column[Runner]("VISIBILITY", lambda item: item["visibility"]),
)
_PROFILES: Final = (
    Column[Profile]("NAME", lambda item: item["name"], Kind.WHOLE),
    Column[Profile]("DEFAULT", lambda item: item["default_version"]),
    Column[Profile]("VERSIONS", lambda item: item["version_count"]),
    Column[Profile]("UPDATED", lambda item: item["updated_at"], Kind.TIME),
)


def list_runners(*, pages: Pages = FIRST_PAGE, options: Global = NO_OPTIONS) -> None:
    """List the runners: where Trials can run, each frozen at a revision.

    Example: tollbar runners list --json
    """
    session = Session(options)
    with session.client() as client:
        show_list(session.out, pages, lambda limit, cursor: client.runners(limit=limit, cursor=cursor), _RUNNERS)


def list_profiles(*, pages: Pages = FIRST_PAGE, options: Global = NO_OPTIONS) -> None:
    """List the profiles: how an agent is run, in versions.

    Example: tollbar profiles list
    """
    session = Session(options)
    with session.client() as client:
        show_list(session.out, pages, lambda limit, cursor: client.profiles(limit=limit, cursor=cursor), _PROFILES)


def whoami(*, options: Global = NO_OPTIONS) -> None:
    """Show who the key is: server, workspace, project, kind of key, capabilities and expiry.

    Example: tollbar whoami --json
    """
    session = Session(options)
    with session.client() as client:
        me = client.me()
    project = me["project"] or {"project_id": None, "name": None}
    session.out.record(
        me,
        [
            ("server", session.configuration.get("url")),
            ("workspace", me["workspace"]["name"]),
            ("workspace_id", me["workspace"]["workspace_id"]),
            ("project", project["name"]),
            ("project_id", project["project_id"]),
            ("key", me["key"].get("key_id")),
            ("kind", me["key"].get("kind")),
            ("preset", me["key"].get("preset")),
            ("expires", me["key"].get("expires_at")),
            ("capabilities", ", ".join(me["capabilities"])),
        ],
    )
