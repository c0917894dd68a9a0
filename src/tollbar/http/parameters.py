"""What routes read from paths and queries: names, pages, flags. All as text, so that errors are our own."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from starlette.requests import Request

from tollbar.access.principal import Principal
from tollbar.agents.errors import ProfileNotFound
from tollbar.datasets.errors import DatasetNotFound
from tollbar.jobs.events.service import LogRequest
from tollbar.kit.errors import InvalidRequest, NotFound
from tollbar.kit.paging import PageRequest, page_request
from tollbar.kit.text import is_storable

_B64 = Path(description="The name in base64url without padding, e.g. dGVzdHMvaGVsbG8td29ybGQ.")
_LIMIT = Query(description="Rows of a page: 1 to 100, 25 when left out.")
_CURSOR = Query(description="The next_cursor of the page before.")


async def storable_parameters(request: Request) -> None:
    """Raises `NotFound` or `InvalidRequest` when the path or the query holds a NUL, which nothing can be named by."""
    if any(not is_storable(str(value)) for value in request.path_params.values()):
        raise NotFound("such thing")
    wrong = sorted({name for name, value in request.query_params.multi_items() if not is_storable(name + value)})
    if wrong:
        raise InvalidRequest([{"path": name, "problem": "holds a NUL character"} for name in wrong])


def decode_name(segment: str) -> str | None:
    """Returns the text of a base64url segment without padding; None unless it is exactly the form that we write."""
    try:
        name = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return name if encode_name(name) == segment and is_storable(name) else None


def encode_name(name: str) -> str:
    """Returns a name as a path segment."""
    return base64.urlsafe_b64encode(name.encode("utf-8")).rstrip(b"=").decode("ascii")


def _dataset_name(b64: Annotated[str, _B64]) -> str:
    name = decode_name(b64)
    if name is None:
        raise DatasetNotFound(b64)
    return name


def _profile_name(b64: Annotated[str, _B64]) -> str:
    name = decode_name(b64)
    if name is None:
        raise ProfileNotFound(b64)
    return name


DatasetName = Annotated[str, Depends(_dataset_name)]
ProfileName = Annotated[str, Depends(_profile_name)]


@dataclass(frozen=True)
class Paging:
    """`limit` and `cursor` as they were sent."""

    limit: str | None
    cursor: str | None

    def of(self, route: str, actor: Principal, **filters: Any) -> PageRequest:
        """Returns the page that is asked for; its cursors belong to this route, project and these filters."""
        return page_request(self.limit, self.cursor, scope={"route": route, "project": actor.project_id, **filters})

    def within(self, scope: dict[str, str]) -> PageRequest:
        """Returns the page that is asked for of a list that names itself."""
        return page_request(self.limit, self.cursor, scope=scope)


def _paging(limit: Annotated[str | None, _LIMIT] = None, cursor: Annotated[str | None, _CURSOR] = None) -> Paging:
    return Paging(limit, cursor)


def _trials_paging(
    trials_limit: Annotated[str | None, _LIMIT] = None, trials_cursor: Annotated[str | None, _CURSOR] = None
) -> Paging:
    return Paging(trials_limit, trials_cursor)


PageQuery = Annotated[Paging, Depends(_paging)]
TrialsQuery = Annotated[Paging, Depends(_trials_paging)]


def _log_request(
    source: Annotated[str | None, Query(description="all, system or runtime.")] = None,
    cursor: Annotated[str | None, _CURSOR] = None,
    tail: Annotated[str | None, Query(description="Only the last so many lines, 1 to 1000; not with cursor.")] = None,
    limit: Annotated[str | None, Query(description="Lines of a page: 1 to 1000, 200 when left out.")] = None,
) -> LogRequest:
    return LogRequest(source, cursor, tail, limit)


LogQuery = Annotated[LogRequest, Depends(_log_request)]


def flag(name: str, value: str | None) -> bool:
    """Reads a query parameter that says yes or no; absent is no. Raises `InvalidRequest`."""
    if value in {None, "false", "0"}:
        return False
    if value in {"true", "1"}:
        return True
    raise InvalidRequest([{"path": name, "problem": "must be true or false"}])


def whole_number(name: str, value: str | None, default: int) -> int:
    """Reads a whole number from the query; raises `InvalidRequest`."""
    if value is None:
        return default
    if not value.isascii() or not value.removeprefix("-").isdecimal() or len(value) > 18:
        raise InvalidRequest([{"path": name, "problem": "must be a whole number"}])
    return int(value)
