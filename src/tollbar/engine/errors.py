"""What the engine refuses."""

from __future__ import annotations

from tollbar.kit.errors import TollbarError


class EngineRefused(TollbarError):
    """The process cannot run durable work in this environment; the hint says what to change."""

    code = "ENGINE_REFUSED"
    status = 500

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"The engine does not start: {problem}.", hint=hint)


class WorkExists(Exception):
    """Work of that id was enqueued before: a fault or a lost race of the caller, so no interface shows it.

    The transaction stays usable.
    """

    def __init__(self, work_id: str) -> None:
        super().__init__(f"work {work_id} was enqueued before")
        self.work_id = work_id


class DeclaredDead(Exception):
    """This worker was declared dead and others have its work: it has killed its sandboxes and must end (exit 70)."""
