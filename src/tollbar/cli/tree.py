"""The tree of commands as data: nouns, verbs, and where the function of each lies. Loading it loads no command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cyclopts import App, Group

START, MEASURE, TEAMS, ACCESS = (
    Group(name, sort_key=position) for position, name in enumerate(("Start", "Measure", "Teams", "Access"))
)

HELP: Final = """Measure agents and run teams of agents, on your own server.

Start a server with `tollbar up`. Data goes to stdout, all else to stderr.
Exit codes: tollbar help exit-codes
"""


@dataclass(frozen=True)
class Command:
    """A command without a verb, or one that a higher layer registers: its function as `module:function`."""

    name: str
    function: str
    summary: str
    group: Group = field(default=START)


@dataclass(frozen=True)
class Noun:
    """A noun and its verbs; each verb is a function as `module:function`."""

    name: str
    summary: str
    group: Group
    verbs: Mapping[str, str]


NOUNS: Final = (
    Noun(
        "datasets",
        "Collections of tasks, in versions.",
        MEASURE,
        {
            "list": "tollbar.cli.datasets:list_datasets",
            "show": "tollbar.cli.datasets:show_dataset",
            "push": "tollbar.cli.pushing:push_dataset",
            "check": "tollbar.cli.checking:check_dataset",
        },
    ),
    Noun("runners", "Where Trials run.", MEASURE, {"list": "tollbar.cli.catalogue:list_runners"}),
    Noun("profiles", "How an agent is run.", MEASURE, {"list": "tollbar.cli.catalogue:list_profiles"}),
    Noun(
        "jobs",
        "Measurements of an agent on a dataset.",
        MEASURE,
        {
            "submit": "tollbar.cli.submitting:submit_job",
            "list": "tollbar.cli.jobs:list_jobs",
            "show": "tollbar.cli.jobs:show_job",
            "watch": "tollbar.cli.jobs:watch_job",
            "stop": "tollbar.cli.jobs:stop_job",
            "result": "tollbar.cli.jobs:show_result",
            "logs": "tollbar.cli.logs:show_job_logs",
            "retry": "tollbar.cli.retrying:retry_job",
        },
    ),
    Noun(
        "trials",
        "Single attempts at a task.",
        MEASURE,
        {
            "list": "tollbar.cli.trials:list_trials",
            "show": "tollbar.cli.trials:show_trial",
            "logs": "tollbar.cli.logs:show_trial_logs",
        },
    ),
    Noun(
        "artifacts",
        "What Trials left behind; untrusted.",
        MEASURE,
        {"list": "tollbar.cli.artifacts:list_artifacts", "get": "tollbar.cli.artifacts:get_artifacts"},
    ),
    Noun("limits", "What bounds the project.", ACCESS, {"show": "tollbar.cli.money:show_limits"}),
    Noun(
        "billing",
        "What the project has spent, and what things cost.",
        ACCESS,
        {
            "show": "tollbar.cli.money:show_account",
            "usage": "tollbar.cli.money:show_usage",
            "ledger": "tollbar.cli.money:list_ledger",
            "prices": "tollbar.cli.money:list_prices",
        },
    ),
    Noun("prices", "What models cost.", ACCESS, {"show": "tollbar.cli.prices:show_prices"}),
    Noun(
        "config",
        "Which server, key and form are used.",
        ACCESS,
        {"explain": "tollbar.cli.configuring:explain", "path": "tollbar.cli.configuring:show_path"},
    ),
    Noun("help", "More than the help of a command.", ACCESS, {"exit-codes": "tollbar.cli.configuring:exit_codes"}),
)

COMMANDS: Final = (Command("whoami", "tollbar.cli.catalogue:whoami", "Show who the key is.", ACCESS),)


def _verbs(noun: Noun | None) -> Mapping[str, str]:
    return {} if noun is None else noun.verbs


@dataclass(frozen=True)
class Further:
    """Commands and nouns of higher layers, which this one may not import."""

    commands: tuple[Command, ...] = ()
    nouns: tuple[Noun, ...] = ()

    @property
    def all_commands(self) -> tuple[Command, ...]:
        """Every command without a verb."""
        return (*self.commands, *COMMANDS)

    @property
    def all_nouns(self) -> tuple[Noun, ...]:
        """Every noun; verbs of a higher layer join those that their noun has here."""
        further = {noun.name: noun for noun in self.nouns}
        own = [replace(noun, verbs={**noun.verbs, **_verbs(further.pop(noun.name, None))}) for noun in NOUNS]
        return (*own, *further.values())


NOTHING_FURTHER: Final = Further()


def build(further: Further = NOTHING_FURTHER) -> App:
    """Returns the command line."""
    app = App(
        name="tollbar",
        help=HELP,
        help_formatter="plain",
        help_format="plaintext",
        version_flags=[],
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
    )
    for command in further.all_commands:
        app.command(command.function, name=command.name, help=command.summary, group=command.group)
    for noun in further.all_nouns:
        part = App(name=noun.name, help=noun.summary, group=noun.group)
        for verb, function in noun.verbs.items():
            part.command(function, name=verb)
        app.command(part)
    return app
