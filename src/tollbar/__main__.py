"""The command `tollbar`. It stands above the layers, and is the one place that knows commands of `cli` and `app`."""

from __future__ import annotations

import sys
from typing import Final

from tollbar import __version__

APP_COMMANDS: Final = (
    ("up", "tollbar.app.up:up", "Start tollbar on this machine."),
    ("serve", "tollbar.app.serve:serve", "Serve the interfaces only; workers do the work."),
    ("worker", "tollbar.app.worker:worker", "Run Trials only, for servers on this or other machines."),
    ("workers", "tollbar.app.workers:workers", "List the workers and their last beats."),
    ("migrate", "tollbar.app.migrate:migrate", "Bring the database up to date."),
    ("backup", "tollbar.app.backup:backup", "Write everything into one file, while the server runs."),
    ("restore", "tollbar.app.restore:restore", "Make an installation from a backup, in an empty place."),
    ("sign-in", "tollbar.app.sign_in:sign_in", "Print a fresh sign-in link of the server on this machine."),
    ("doctor", "tollbar.app.doctor:doctor", "Check this machine, and say how to fix what is wrong."),
)


APP_NOUNS: Final = (
    (
        "storage",
        "What takes disk on the server, and what may go.",
        {
            "show": "tollbar.app.storage:show",
            "prune": "tollbar.app.storage:prune",
            "upgrade": "tollbar.app.upgrade:upgrade",
        },
    ),
    (
        "vault",
        "Secrets of this installation, written and never shown.",
        {
            "list": "tollbar.app.vault:list_secrets",
            "set": "tollbar.app.vault:set_secret",
            "remove": "tollbar.app.vault:remove_secret",
        },
    ),
    (
        "providers",
        "Who serves models to a server that is started here.",
        {"list": "tollbar.app.providers:list_providers", "check": "tollbar.app.providers:check_provider"},
    ),
    (
        "agents",
        "Software of coding agents on this machine.",
        {
            "install": "tollbar.app.agents:install",
            "list": "tollbar.app.agents:list_agents",
            "remove": "tollbar.app.agents:remove",
        },
    ),
    ("trials", "Single attempts at a task.", {"shell": "tollbar.app.shell:shell"}),
    ("limits", "What bounds the project.", {"set": "tollbar.app.limits:set_limits"}),
)


def main() -> int:
    """Runs the command of `sys.argv` and returns its exit code."""
    argv = sys.argv[1:]
    if argv == ["--version"]:
        # Answered before anything is imported: agents ask for it all the time.
        print(f"tollbar {__version__}")  # noqa: T201 - the answer
        return 0
    from tollbar.cli.main import run
    from tollbar.cli.tree import ACCESS, Command, Further, Noun

    commands = tuple(Command(*command) for command in APP_COMMANDS)
    nouns = tuple(Noun(name, summary, ACCESS, verbs) for name, summary, verbs in APP_NOUNS)
    return run(argv, Further(commands, nouns))


if __name__ == "__main__":
    sys.exit(main())
