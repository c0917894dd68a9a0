"""The global options, and what a command gets from them: where to write, and a client of the right server."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from tollbar.cli.config import Configuration, Places, read_stated, resolve
from tollbar.cli.output import Form, Output
from tollbar.cli.problems import BadConfiguration, NoKey

if TYPE_CHECKING:
    from tollbar.client import Client

_GROUP: Final = Group("Global options", sort_key=90)
_FLAG: Final = Parameter(negative="", show_default=False, group=_GROUP)
_VALUE: Final = Parameter(group=_GROUP)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every command takes."""

    json: Annotated[bool, _FLAG, Parameter(help="Print JSON: the server's objects, unchanged.")] = False
    output: Annotated[
        Form | None, _VALUE, Parameter(help="How to print; default: table on a terminal, else plain.")
    ] = None
    url: Annotated[str | None, _VALUE, Parameter(help="The server, as https://HOST[:PORT].")] = None
    context: Annotated[str | None, _VALUE, Parameter(help="The context of the user's config.toml to use.")] = None
    quiet: Annotated[bool, _FLAG, Parameter(help="No progress and no hints on stderr.")] = False
    yes: Annotated[bool, _FLAG, Parameter(help="Answer yes to every question.")] = False

    @property
    def form(self) -> Form | None:
        """What these options say about the form of the output."""
        return Form.JSON if self.json else self.output


NO_OPTIONS: Final = Options()
Global = Annotated[Options, Parameter(name="*")]
"""The type of the last parameter of every command."""


class Session:
    """One run of a command; configuration is read when something needs it."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @cached_property
    def places(self) -> Places:
        """Where configuration is looked for."""
        return Places.of_system(os.environ)

    @cached_property
    def configuration(self) -> Configuration:
        """Which server and key are meant; raises `BadConfiguration`, `NoKey`, `UnusableSetting`."""
        return resolve(self._given(), self.places)

    @cached_property
    def out(self) -> Output:
        """Where the command writes; a command that needs no server looks for none."""
        form = self._options.form
        if form is None:
            configured = read_stated(self._given(), self.places).get("output")
            form = Form(configured) if configured else Form.TABLE if sys.stdout.isatty() else Form.PLAIN
        return Output(form, sys.stdout, sys.stderr, quiet=self._options.quiet, animated=_may_animate())

    def _given(self) -> dict[str, str]:
        form = self._options.form
        given = {"url": self._options.url, "context": self._options.context, "output": form and form.value}
        return {name: value for name, value in given.items() if value is not None}

    def client(self) -> Client:
        """Returns a client of the configured server; raises `BadConfiguration`, `NoKey`, `UnusableSetting`."""
        from tollbar.client import Client  # brings the HTTP library

        found = self.configuration
        url, key = found.get("url"), found.get("api_key")
        if url is None:
            raise BadConfiguration(
                "no server is configured, and none runs on this machine",
                why=["name one: export TOLLBAR_URL=https://..."],
                fix="or start one here: tollbar up",
            )
        if key is None:
            raise NoKey(f"there is no key for {url}", fix="export TOLLBAR_API_KEY=...")
        if found.untrusted_url:
            raise BadConfiguration(
                f"the key is not sent to {url}",
                why=[f"only {found.settings['url'].origin} names that server, and a project's files are not trusted"],
                fix=f"if you trust it: export TOLLBAR_URL={url}",
            )
        return Client(url, key, found.get("workspace"), found.get("project"))


def _may_animate() -> bool:
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM", "dumb") != "dumb"
