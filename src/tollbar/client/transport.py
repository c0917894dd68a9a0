"""One request, one answer: headers, size bounds, and what an HTTP failure means."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, Any, Final

import httpx2

from tollbar import __version__
from tollbar.client.address import check_id, check_key, may_follow, read_address
from tollbar.client.errors import ApiError, ServerUnreachable, UnexpectedAnswer
from tollbar.kit.jsonio import compact, loads_strict

MAX_JSON_BYTES: Final = 16 << 20
_MAX_ERROR_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 18
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

Params = Mapping[str, str | int | None]


@dataclass(frozen=True)
class Upload:
    """A body that is streamed from a file; `timeout_s` is how long the server may work on it."""

    file: IO[bytes]
    size: int
    media_type: str
    timeout_s: float


class Transport:
    """A connection to one server with one key. Not for several threads."""

    def __init__(self, url: str, api_key: str, *, workspace: str | None, project: str | None, timeout_s: float) -> None:
        self._address = read_address(url)
        headers = {
            "Authorization": f"Bearer {check_key(api_key)}",
            "Accept-Encoding": "identity",
            "User-Agent": f"tollbar/{__version__}",
        }
        if workspace is not None:
            headers["X-Workspace-ID"] = check_id("workspace", workspace)
        if project is not None:
            headers["X-Project-ID"] = check_id("project", project)
        self._timeout_s = timeout_s
        self._http = _http_client(self._address.base, headers, timeout_s)

    def close(self) -> None:
        self._http.close()

    def json(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | None = None,
        upload: Upload | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Returns status and object of a successful answer; raises `ApiError`, `ServerUnreachable`, `UnexpectedAnswer`.

        Sends once: only who knows that a request may be repeated repeats it.
        """
        headers = {"Content-Type": "application/json"}
        content: bytes | Iterable[bytes] | None = None
        timeout_s = self._timeout_s
        if body is not None:
            content = compact(dict(body)).encode()
        elif upload is not None:
            headers = {"Content-Type": upload.media_type, "Content-Length": str(upload.size)}
            content, timeout_s = _chunks(upload.file), upload.timeout_s
        request = self._http.build_request(
            method,
            f"v1/{path}",
            params=_given(params),
            headers=headers,
            content=content,
            timeout=httpx2.Timeout(self._timeout_s, read=timeout_s),
        )
        with self._send(self._http, request) as response:
            if not 200 <= response.status_code < 300:
                raise self._failure(response)
            value = self._value(response)
            if not isinstance(value, dict):
                raise UnexpectedAnswer(self._address.base, "answered with something else than a JSON object")
            return response.status_code, value

    @contextmanager
    def content(self, path: str) -> Generator[Iterator[bytes]]:
        """Gives the bytes of a download in chunks, following at most one redirect, to which no credential goes."""
        request = self._http.build_request("GET", f"v1/{path}")
        with self._send(self._http, request) as response:
            if response.status_code == 200:
                yield response.iter_bytes(_CHUNK_BYTES)
                return
            if response.status_code not in _REDIRECTS:
                raise self._failure(response)
            target = response.headers.get("location", "")
        if not may_follow(target):
            raise UnexpectedAnswer(self._address.base, "sends downloads to an address that is not https")
        with (
            _http_client(target, {"Accept-Encoding": "identity"}, self._timeout_s) as other,
            self._send(other, other.build_request("GET", target)) as response,
        ):
            if response.status_code != 200:
                raise UnexpectedAnswer(self._address.base, f"sent the download on, to HTTP {response.status_code}")
            yield response.iter_bytes(_CHUNK_BYTES)

    @contextmanager
    def _send(self, http: httpx2.Client, request: httpx2.Request) -> Generator[httpx2.Response]:
        """Gives the answer while it is open; a fault of the network also while it is read is `ServerUnreachable`."""
        try:
            response = http.send(request, stream=True)
            try:
                yield response
            finally:
                response.close()
        except httpx2.TimeoutException:
            raise ServerUnreachable(self._address.base, "no answer in time") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise ServerUnreachable(self._address.base, _plain(error)) from None

    def _value(self, response: httpx2.Response) -> Any:
        data = _bounded(response, MAX_JSON_BYTES)
        if data is None:
            raise UnexpectedAnswer(self._address.base, f"answered with more than {MAX_JSON_BYTES} bytes")
        try:
            return loads_strict(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise UnexpectedAnswer(self._address.base, "answered with something else than JSON") from None

    def _failure(self, response: httpx2.Response) -> ApiError | UnexpectedAnswer:
        if response.status_code < 400:
            return UnexpectedAnswer(self._address.base, f"answered with a redirect (HTTP {response.status_code})")
        try:
            body = loads_strict((_bounded(response, _MAX_ERROR_BYTES) or b"").decode("utf-8"))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("code"), str):
            body = {"code": "HTTP_ERROR", "message": f"The server answered HTTP {response.status_code}."}
        return ApiError(response.status_code, body, _retry_after_s(response.headers.get("retry-after")))


def _http_client(url: str, headers: Mapping[str, str], timeout_s: float) -> httpx2.Client:
    """Plain http means this machine: no proxy stands between, and no certificates need to be loaded for it."""
    local = url.startswith("http://")
    return httpx2.Client(
        base_url=url,
        headers=dict(headers),
        timeout=timeout_s,
        trust_env=not local,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if local else True,
    )


def _given(params: Params | None) -> dict[str, str | int]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _bounded(response: httpx2.Response, max_bytes: int) -> bytes | None:
    """Returns the body, or None when it is larger than `max_bytes`."""
    parts: list[bytes] = []
    size = 0
    for chunk in response.iter_bytes(_CHUNK_BYTES):
        size += len(chunk)
        if size > max_bytes:
            return None
        parts.append(chunk)
    return b"".join(parts)


def _retry_after_s(value: str | None) -> float | None:
    """Reads `Retry-After`: seconds, or an HTTP date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:9])
    from tollbar.kit.clock import SystemClock  # brings asyncio, which nothing else here needs

    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment - SystemClock().now()).total_seconds()) if moment.tzinfo is not None else None


def _plain(error: Exception) -> str:
    """Returns what happened in the words of the system, without its number."""
    text = str(error) or type(error).__name__
    _, bracket, rest = text.partition("] ")
    return (rest if bracket and text.startswith("[Errno") else text).rstrip(".")
