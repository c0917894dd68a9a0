"""Routes of the console: sign in by a link, the list of Jobs, and the page of one Job. Pages need no script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tollbar.access import service as access
from tollbar.access.errors import SignInLinkSpent
from tollbar.access.principal import Principal
from tollbar.console import views
from tollbar.db.session import Database
from tollbar.jobs import service as jobs
from tollbar.jobs.service import JobsContext
from tollbar.kit.clock import Clock
from tollbar.kit.errors import TollbarError
from tollbar.kit.paging import page_request

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
COOKIE: Final = "tollbar_session"
_MAX_FORM_BYTES: Final = 4096
_STATIC: Final = {"console.css": "text/css", "icon.svg": "image/svg+xml"}

Page = Callable[[Request, Principal], Awaitable[Response]]


@dataclass(frozen=True)
class ConsoleDeps:
    """What the console uses."""

    database: Database
    jobs: JobsContext
    clock: Clock
    secure: bool
    """The public origin is https: cookies get their prefix and are sent over https alone."""


class Console:
    """The pages; `routes` goes into the outer app."""

    def __init__(self, deps: ConsoleDeps) -> None:
        self._deps = deps
        self._templates = Environment(
            loader=PackageLoader("tollbar.console"), autoescape=select_autoescape(), undefined=StrictUndefined
        )
        self._cookie = f"__Host-{COOKIE}" if deps.secure else COOKIE

    def routes(self) -> list[BaseRoute]:
        """Returns the routes of all pages; their paths are permanent."""
        return [
            Route("/", self._home, methods=["GET"]),
            Route("/jobs", self._signed_in(self._jobs), methods=["GET"]),
            Route("/jobs/{job_id}", self._signed_in(self._job), methods=["GET"]),
            Route("/sign-in", self._sign_in, methods=["GET"]),
            Route("/sign-in", self._use_link, methods=["POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/static/{name}", self._static, methods=["GET"]),
        ]

    async def _home(self, request: Request) -> Response:
        del request
        return RedirectResponse("/jobs", status_code=303)

    async def _jobs(self, request: Request, actor: Principal) -> Response:
        scope = {"route": "console.jobs", "project": actor.project_id}
        page = page_request(None, request.query_params.get("cursor"), scope=scope)
        async with self._deps.database.session() as session:
            found = await jobs.list_page(session, self._deps.jobs, actor, page)
        lines = [views.job_line(job) for job in found.items]
        return self._render("jobs.html", signed_in=True, jobs=lines, next_cursor=found.next_cursor)

    async def _job(self, request: Request, actor: Principal) -> Response:
        job_id = request.path_params["job_id"]
        async with self._deps.database.session() as session:
            job = await jobs.status(session, self._deps.jobs, actor, job_id)
            matrix = await jobs.matrix(session, actor, job_id)
        return self._render("job.html", signed_in=True, **views.job_page(job, matrix))

    async def _sign_in(self, request: Request) -> Response:
        """Shows a button and uses nothing up: previews and prefetchers fetch links, too."""
        link = request.query_params.get("link", "")
        async with self._deps.database.session() as session:
            if not link or not await access.sign_in_link_is_open(session, link, self._deps.clock):
                return self._no_link()
        host = request.headers.get("host", "this server")
        return self._render("sign_in.html", signed_in=False, link=link, host=host)

    async def _use_link(self, request: Request) -> Response:
        if not _own_origin(request):
            return self._message(403, "Not from here", "The form was sent from another site.")
        body = await _small_form(request)
        try:
            async with self._deps.database.transaction() as session:
                token = await access.redeem_sign_in_link(session, body.get("link", ""), self._deps.clock)
        except SignInLinkSpent:
            return self._no_link()
        answer = RedirectResponse("/jobs", status_code=303)
        left_s = int((token.expires_at - self._deps.clock.now()).total_seconds())
        answer.set_cookie(
            self._cookie, token.value, max_age=left_s, httponly=True, samesite="lax", secure=self._deps.secure
        )
        return self._protected(answer)

    async def _sign_out(self, request: Request) -> Response:
        if not _own_origin(request):
            return self._message(403, "Not from here", "The form was sent from another site.")
        cookie = request.cookies.get(self._cookie)
        if cookie:
            async with self._deps.database.transaction() as session:
                await access.sign_out(session, cookie, self._deps.clock)
        answer = self._message(200, "Signed out", "This browser is signed out.")
        answer.delete_cookie(self._cookie, secure=self._deps.secure, httponly=True)
        return answer

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return self._message(404, "Not found", "There is no such file.")
        data = files("tollbar.console").joinpath("static", name).read_bytes()
        return self._protected(Response(data, media_type=_STATIC[name], headers={"Cache-Control": "max-age=300"}))

    def _signed_in(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            cookie = request.cookies.get(self._cookie)
            actor = None
            if cookie:
                async with self._deps.database.transaction() as session:
                    actor = await access.session_principal(session, cookie, self._deps.clock)
            if actor is None:
                text = "Open the sign-in link that the server printed at its start, or make a new one:"
                return self._message(401, "Sign in first", text, "tollbar sign-in")
            try:
                return await page(request, actor)
            except TollbarError as error:
                return self._message(error.status, "That did not work", error.message, signed_in=True)

        return handler

    def _no_link(self) -> Response:
        text = "This sign-in link was used, or is older than ten minutes. Make a new one on the server's machine:"
        return self._message(410, "The link is spent", text, "tollbar sign-in")

    def _message(
        self, status: int, title: str, text: str, command: str | None = None, *, signed_in: bool = False
    ) -> Response:
        return self._render("message.html", status=status, signed_in=signed_in, title=title, text=text, command=command)

    def _render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        html = self._templates.get_template(template).render(**values)
        return self._protected(HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-store"}))

    def _protected(self, answer: Response) -> Response:
        answer.headers["Content-Security-Policy"] = CONTENT_POLICY
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "same-origin"
        answer.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        if self._deps.secure:
            answer.headers["Strict-Transport-Security"] = "max-age=31536000"
        return answer


def _own_origin(request: Request) -> bool:
    """Says whether a form came from a page of this server: every browser sends `Origin` with a POST."""
    origin = request.headers.get("origin", "")
    return origin.partition("://")[2] == request.headers.get("host")


async def _small_form(request: Request) -> dict[str, str]:
    """Returns the fields of a URL-encoded form of at most 4 KiB; anything larger is an empty form."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_FORM_BYTES:
            return {}

    return dict(parse_qsl(data.decode("utf-8", errors="replace")))
