"""What can be wrong with a submission or a question about a Job or Trial."""

from __future__ import annotations

from collections.abc import Sequence

from tollbar.kit.errors import TollbarError


class JobNotFound(TollbarError):
    """No such Job in this project."""

    code = "JOB_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such Job in this project.")


class TrialNotFound(TollbarError):
    """No such Trial in this project."""

    code = "TRIAL_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such Trial in this project.")


class SandboxNotKept(TollbarError):
    """The sandbox of the Trial is not kept: its Job does not ask for it, the Trial passed, or the time is over."""

    code = "SANDBOX_NOT_KEPT"
    status = 409

    def __init__(self, trial_id: str) -> None:
        super().__init__(
            f"The sandbox of {trial_id} is not kept.",
            hint="Ask for it when the Job is submitted: tollbar jobs submit ... --keep-failed 1h",
        )


class JobRequestConflict(TollbarError):
    """The `request_id` was used before with other arguments; names what differs, never the values."""

    code = "JOB_REQUEST_CONFLICT"
    status = 409

    def __init__(self, job_id: str, differs: Sequence[str]) -> None:
        super().__init__("This request_id was used with other arguments.", job_id=job_id, differs=list(differs))


class JobActionUnsupported(TollbarError):
    """Jobs cannot be paused, resumed or woken."""

    code = "JOB_ACTION_UNSUPPORTED"
    status = 409

    def __init__(self, action: str) -> None:
        super().__init__(f"An Agent Job cannot {action}.", hint="It can be stopped: POST /v1/job/{id}/stop")


class InvalidRequestId(TollbarError):
    """`request_id` is not 1 to 128 printable characters."""

    code = "INVALID_REQUEST_ID"
    status = 422

    def __init__(self) -> None:
        super().__init__("request_id must be text of 1 to 128 printable characters.")


class InvalidJob(TollbarError):
    """The submission cannot become a Job; says which part."""

    code = "INVALID_JOB"
    status = 422

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class InvalidJobId(TollbarError):
    """Callers cannot choose a Job's id."""

    code = "INVALID_JOB_ID"
    status = 422

    def __init__(self) -> None:
        super().__init__("job_id cannot be chosen.", hint="Use tag and request_id to find your Jobs again.")


class InvalidJobType(TollbarError):
    """The type is not one of the wire's words."""

    code = "INVALID_JOB_TYPE"
    status = 422

    def __init__(self) -> None:
        super().__init__("type must be agent or regrade.")


class InvalidJobStatus(TollbarError):
    """The status filter is not one of the wire's words."""

    code = "INVALID_JOB_STATUS"
    status = 422

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(f"status must be one of {', '.join(known)}.")


class InvalidTrialStatus(TollbarError):
    """The status filter of Trials is not one of the wire's words."""

    code = "INVALID_TRIAL_STATUS"
    status = 422

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(f"status must be one of {', '.join(known)}.")


class InvalidAttempts(TollbarError):
    """`attempts` is out of range."""

    code = "INVALID_ATTEMPTS"
    status = 422

    def __init__(self) -> None:
        super().__init__("attempts must be a whole number from 1 to 100.")


class InvalidTag(TollbarError):
    """`tag` is not 1 to 128 printable characters."""

    code = "INVALID_TAG"
    status = 422

    def __init__(self) -> None:
        super().__init__("tag must be text of 1 to 128 printable characters.")


class InvalidPriority(TollbarError):
    """`priority` is out of range."""

    code = "INVALID_PRIORITY"
    status = 422

    def __init__(self) -> None:
        super().__init__("priority must be a whole number from -100 to 100.")


class QueueNotFound(TollbarError):
    """Only the queue `default` exists."""

    code = "QUEUE_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such queue; leave queue_id out, or say default.")


class ProfileRunnerConflict(TollbarError):
    """The profile is bound to another runner than the one asked for."""

    code = "PROFILE_RUNNER_CONFLICT"
    status = 409

    def __init__(self, profile: str, bound: str) -> None:
        super().__init__(f"The profile {profile} is bound to the runner {bound}.")


class UnsupportedCommand(TollbarError):
    """`command` was given to an agent that takes none."""

    code = "UNSUPPORTED_COMMAND"
    status = 422

    def __init__(self, agent: str) -> None:
        super().__init__(
            f"The agent {agent} takes no command.", hint="Use a profile of the agent command, such as tollbar/command."
        )


class UnsupportedTaskForm(TollbarError):
    """Inline tasks are not taken."""

    code = "UNSUPPORTED_TASK_FORMAT"
    status = 422

    def __init__(self) -> None:
        super().__init__(
            "A submission names a dataset; inline tasks are not taken.",
            hint="Push a folder first: tollbar datasets push DIR",
        )


class UnsupportedCapability(TollbarError):
    """What was asked for cannot be done here, and nothing was written."""

    code = "UNSUPPORTED_CAPABILITY"
    status = 422

    def __init__(self, message: str, *, refused: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(message)
        if refused:
            self.facts["refused"] = list(refused)


class MissingCap(TollbarError):
    """Over MCP a submission without a cap is never made."""

    code = "INVALID_AMOUNT"
    status = 422

    def __init__(self) -> None:
        super().__init__(
            "max_cost_usd is required.",
            hint="Give the most that this Job may spend, in USD.",
            fields=[{"path": "max_cost_usd", "problem": "is required"}],
        )


class InvalidCommand(TollbarError):
    """`command` is no text that a shell can be given."""

    code = "INVALID_COMMAND"
    status = 422

    def __init__(self, rule: str) -> None:
        super().__init__(f"command must be {rule}.")


class LogCursorInvalid(TollbarError):
    """The cursor is damaged, or belongs to another Job, Trial or source."""

    code = "LOG_CURSOR_INVALID"
    status = 422

    def __init__(self) -> None:
        super().__init__("The cursor is not one of this log.", hint="Ask again without a cursor.")


class InvalidLogSource(TollbarError):
    """`source` is not a source of logs."""

    code = "INVALID_LOG_SOURCE"
    status = 422

    def __init__(self) -> None:
        super().__init__("source must be all, system or runtime.")
