"""Routes of the console: sign in by a link, the list of Jobs, the page of one Job, settings. Pages need no script."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

import tollbar
from tollbar.access import service as access
from tollbar.access.errors import SignInLinkSpent
from tollbar.access.principal import Principal
from tollbar.console import money, views
from tollbar.console.protection import form_token, is_own_form, own_origin, protected, small_form
from tollbar.db.session import Database
from tollbar.jobs import service as jobs
from tollbar.jobs.service import JobsContext
from tollbar.jobs.states import JobState
from tollbar.kit.clock import Clock
from tollbar.kit.errors import InternalError, ServiceUnavailable, TollbarError
from tollbar.kit.paging import page_request
from tollbar.kit.text import is_storable, printable

COOKIE: Final = "tollbar_session"
_STATIC: Final = {"console.css": "text/css", "icon.svg": "image/svg+xml"}
_PROGRAMS: Final = ("/v1", "/api", "/.well-known")
_STATES: Final = tuple(state.value for state in JobState)
_TITLES: Final = {404: "Not found", 422: "That address is not right", 500: "Something broke", 503: "Not available now"}

Handler = Callable[[Request], Awaitable[Response]]
Page = Callable[[Request, Principal, str], Awaitable[Response]]
"""A page of a signed-in person; the text is the token of its forms."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class ConsoleDeps:
    """What the console uses."""

    database: Database
    jobs: JobsContext
    clock: Clock
    secure: bool
    """The public origin is https: cookies get their prefix and are sent over https alone."""


class Console:
    """The pages; `routes` goes into the outer app, behind all other routes."""

    def __init__(self, deps: ConsoleDeps) -> None:
        self._deps = deps
        environment = Environment(
            loader=PackageLoader("tollbar.console"),
            autoescape=select_autoescape(),
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["shown"] = printable
        # Read once, here: no request waits for the disk.
        self._templates = {name: environment.get_template(name) for name in environment.list_templates(["html"])}
        folder = files("tollbar.console").joinpath("static")
        self._static_files = {name: folder.joinpath(name).read_bytes() for name in _STATIC}
        self._cookie = f"__Host-{COOKIE}" if deps.secure else COOKIE

    def routes(self) -> list[BaseRoute]:
        """Returns the routes of all pages; their paths are permanent. The last one takes what no other route has."""
        return [
            self._route("/", self._home),
            self._route("/jobs", self._signed_in(self._jobs)),
            self._route("/jobs/{job_id}", self._signed_in(self._job)),
            self._route("/jobs/{job_id}/stop", self._signed_in(self._stop), "POST"),
            self._route("/settings", self._signed_in(self._settings)),
            self._route("/settings", self._signed_in(self._save_settings), "POST"),
            self._route("/sign-in", self._sign_in),
            self._route("/sign-in", self._use_link, "POST"),
            self._route("/sign-out", self._sign_out, "POST"),
            self._route("/static/{name}", self._static),
            _OtherPages("/{path:path}", self._guarded(self._nothing), methods=["GET"]),
        ]

    def _route(self, path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, self._guarded(handler), methods=[method])

    async def _home(self, request: Request) -> Response:
        del request
        return RedirectResponse("/jobs", status_code=303)

    async def _jobs(self, request: Request, actor: Principal, token: str) -> Response:
        asked = request.query_params
        status = asked.get("status") if asked.get("status") in _STATES else None
        tag = asked.get("tag") if is_storable(asked.get("tag", "")) else ""
        scope = {"route": "console.jobs", "project": actor.project_id, "status": status, "tag": tag}
        page = page_request(None, asked.get("cursor"), scope=scope)
        async with self._deps.database.session() as session:
            found = await jobs.list_page(session, self._deps.jobs, actor, page, state=status, tag=tag)
            now = self._deps.clock.now()
            day_warning = await money.day_warning(session, actor, now)
        return self._render(
            "jobs.html",
            token=token,
            day_warning=day_warning,
            jobs=[views.job_line(job, now) for job in found.items],
            next_cursor=found.next_cursor,
            is_first="cursor" not in asked,
            states=_STATES,
            chosen=status,
            tag=tag,
        )

    async def _job(self, request: Request, actor: Principal, token: str) -> Response:
        job_id = request.path_params["job_id"]
        async with self._deps.database.session() as session:
            job = await jobs.status(session, self._deps.jobs, actor, job_id)
            matrix = await jobs.matrix(session, actor, job_id)
        reason, now = request.query_params.get("reason"), self._deps.clock.now()

        def page() -> Response:
            return self._render("job.html", token=token, **views.job_page(job, matrix, now, reason))

        # A matrix may have 10,000 cells, which take a tenth of a second.
        return await asyncio.to_thread(page)

    async def _stop(self, request: Request, actor: Principal, token: str) -> Response:
        del token
        if not is_own_form(request, request.cookies.get(self._cookie), await small_form(request)):
            return self._foreign_form()
        job_id = request.path_params["job_id"]
        async with self._deps.database.transaction() as session:
            job = await jobs.stop(session, self._deps.jobs, actor, job_id)
        return RedirectResponse(f"/jobs/{job['job_id']}", status_code=303)

    async def _settings(self, request: Request, actor: Principal, token: str) -> Response:
        del request
        async with self._deps.database.session() as session:
            page = await money.settings_page(session, actor, self._deps.clock.now())
        return self._render("settings.html", token=token, **page)

    async def _save_settings(self, request: Request, actor: Principal, token: str) -> Response:
        form = await small_form(request)
        if not is_own_form(request, request.cookies.get(self._cookie), form):
            return self._foreign_form()
        async with self._deps.database.transaction() as session:
            wrong = await money.save_limits(session, actor, form, self._deps.clock)
        if wrong is None:
            return RedirectResponse("/settings", status_code=303)
        async with self._deps.database.session() as session:
            page = await money.settings_page(session, actor, self._deps.clock.now(), typed=form, wrong=wrong)
        return self._render("settings.html", status=422, token=token, **page)

    async def _sign_in(self, request: Request) -> Response:
        """Shows a button and uses nothing up: previews and prefetchers fetch links, too."""
        link = request.query_params.get("link", "")
        async with self._deps.database.session() as session:
            if not link or not await access.sign_in_link_is_open(session, link, self._deps.clock):
                return self._no_link()
        return self._render("sign_in.html", link=link, host=request.headers.get("host", "this server"))

    async def _use_link(self, request: Request) -> Response:
        if not own_origin(request):
            return self._foreign_form()
        form = await small_form(request)
        try:
            async with self._deps.database.transaction() as session:
                token = await access.redeem_sign_in_link(session, form.get("link", ""), self._deps.clock)
        except SignInLinkSpent:
            return self._no_link()
        answer = RedirectResponse("/jobs", status_code=303)
        left_s = int((token.expires_at - self._deps.clock.now()).total_seconds())
        answer.set_cookie(
            self._cookie, token.value, max_age=left_s, httponly=True, samesite="lax", secure=self._deps.secure
        )
        return answer

    async def _sign_out(self, request: Request) -> Response:
        cookie = request.cookies.get(self._cookie)
        if not own_origin(request) or (cookie and not is_own_form(request, cookie, await small_form(request))):
            return self._foreign_form()
        if cookie:
            async with self._deps.database.transaction() as session:
                await access.sign_out(session, cookie, self._deps.clock)
        text = "This browser is signed out. To come back, make a new sign-in link on the server's machine:"
        answer = self._message(200, "Signed out", text, "tollbar sign-in")
        answer.delete_cookie(self._cookie, secure=self._deps.secure, httponly=True, samesite="lax")
        return answer

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static_files:
            return await self._nothing(request)
        headers = {"Cache-Control": "public, max-age=300"}
        return Response(self._static_files[name], media_type=_STATIC[name], headers=headers)

    async def _nothing(self, request: Request) -> Response:
        del request
        return self._message(404, _TITLES[404], "There is no page at this address.", back=True)

    def _signed_in(self, page: Page) -> Handler:
        async def handler(request: Request) -> Response:
            cookie = request.cookies.get(self._cookie)
            actor = None
            if cookie:
                async with self._deps.database.transaction() as session:
                    actor = await access.session_principal(session, cookie, self._deps.clock)
            if cookie is None or actor is None:
                text = "Open the sign-in link that the server printed when it started, or make a new one there:"
                return self._message(401, "Sign in first", text, "tollbar sign-in")
            token = form_token(cookie)
            try:
                return await page(request, actor, token)
            except TollbarError as error:
                return self._refusal(error, token)

        return handler

    def _guarded(self, handler: Handler) -> Handler:
        """Returns the handler with a page for whatever it raises, and with the headers that every answer has."""

        async def guarded(request: Request) -> Response:
            try:
                answer = await handler(request)
            except ClientDisconnect:
                raise
            except TollbarError as error:
                answer = self._refusal(error, None)
            except (OperationalError, InterfaceError):
                _log.warning("the database did not answer", path=request.url.path, exc_info=True)
                answer = self._refusal(ServiceUnavailable("The database"), None)
            except Exception:  # noqa: BLE001 - a crash of ours is a page, under an id that the log has
                error_id = uuid.uuid4().hex
                _log.exception("a page failed", error_id=error_id, path=request.url.path)
                answer = self._refusal(InternalError(error_id), None)
            return protected(answer, secure=self._deps.secure)

        return guarded

    def _refusal(self, error: TollbarError, token: str | None) -> Response:
        title = _TITLES.get(error.status, "That did not work")
        code = error.facts.get("error_id", error.code)
        return self._message(error.status, title, error.message, token=token, code=code, back=True)

    def _foreign_form(self) -> Response:
        text = "This form did not come from a page of this server, or its page is too old. Nothing was changed."
        return self._message(403, "Nothing was changed", text, back=True)

    def _no_link(self) -> Response:
        text = "This sign-in link was used, or is older than ten minutes. Make a new one on the server's machine:"
        return self._message(410, "The link is spent", text, "tollbar sign-in")

    def _message(
        self,
        status: int,
        title: str,
        text: str,
        command: str | None = None,
        *,
        token: str | None = None,
        code: str | None = None,
        back: bool = False,
    ) -> Response:
        facts = {"title": title, "text": text, "command": command, "code": code, "back": back}
        return self._render("message.html", status=status, token=token, **facts)

    def _render(self, template: str, *, status: int = 200, token: str | None = None, **values: Any) -> Response:
        html = self._templates[template].render(token=token, version=tollbar.__version__, **values)
        return HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-store"})


class _OtherPages(Route):
    """Takes what a browser asks for and no route has; programs keep the JSON answer of their interface."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        programs = any(path == root or path.startswith(f"{root}/") for root in _PROGRAMS)
        accept = dict(scope.get("headers", [])).get(b"accept", b"")
        if programs or b"text/html" not in accept:
            return Match.NONE, {}
        found, child = super().matches(scope)
        # A partial match would turn a wrong method of another route into one of this route.
        return (found, child) if found is Match.FULL else (Match.NONE, {})
