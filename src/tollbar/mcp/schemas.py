"""Schemas of tools as plain JSON Schema: a root object, no `$ref`, nothing that a model's API refuses.

Arguments are checked by the same service code as over HTTP, so both interfaces answer with the same codes; the
schemas here tell a model what to send.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]


def text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def whole(description: str, low: int, high: int, default: int | None = None) -> Schema:
    found: Schema = {"type": "integer", "minimum": low, "maximum": high, "description": description}
    return found if default is None else {**found, "default": default}


LIMIT: Final = whole("Items of one page, 1 to 100.", 1, 100, 25)
CURSOR: Final = text("The next_cursor of the page before.")
JOB_ID: Final = text("Id of the Job, job_...")
TRIAL_ID: Final = text("Id of the Trial, trial_...")


def arguments(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Returns the schema of a tool's arguments; members that are not named are refused."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def result(required: tuple[str, ...], **properties: Schema) -> Schema:
    """Returns the schema of a tool's result; further members may stand beside the named ones."""
    return {"type": "object", "properties": properties, "required": list(required)}


_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_NULL_TEXT: Final[Schema] = {"type": ["string", "null"]}
_OBJECT: Final[Schema] = {"type": "object"}
_NULL_OBJECT: Final[Schema] = {"type": ["object", "null"]}
_LIST: Final[Schema] = {"type": "array", "items": {"type": "object"}}

DATASETS: Final = result(("items", "next_cursor"), items=_LIST, next_cursor=_NULL_TEXT)

DATASET: Final = result(
    ("name", "type"),
    name={"type": "string"},
    type={"type": "string"},
    version=_NULL_TEXT,
    versions={"type": ["array", "object"]},
    tasks=_OBJECT,
)

JOB: Final = result(
    ("job_id", "status", "phase", "score", "pass", "n_scored", "n_total", "trial_counts", "budget", "cost"),
    # pass@k and pass^k are further members: clients hand on only property names of letters, digits, dot, dash, _.
    job_id={"type": "string"},
    status={
        "type": "string",
        "enum": ["pending", "running", "stopping", "completed", "failed", "cancelled"],
    },
    phase={"type": "string"},
    error=_NULL_OBJECT,
    score={**_NUMBER, "description": "Mean over tasks of the mean reward over that task's scored attempts."},
    **{
        "pass": {
            **_NUMBER,
            "description": "Mean over tasks of the share of scored attempts that pass; pass@k and pass^k, objects by k,"
            " stand beside it.",
        }
    },
    n_scored={"type": "integer"},
    n_total={"type": "integer"},
    intervals=_OBJECT,
    trial_counts=_OBJECT,
    budget=_OBJECT,
    cost=_OBJECT,
    simulated={"type": "boolean", "description": "True: model calls were answered from a script."},
    poll_after_s={"type": ["number", "null"], "description": "Ask again after this many seconds; null at the end."},
)

JOB_RESULT: Final[Schema] = {
    **JOB,
    "properties": {**JOB["properties"], "usage": _OBJECT, "trials": DATASETS},
    "required": [*JOB["required"], "usage", "trials"],
}

TRIAL_RESULT: Final = result(
    ("trial_id", "job_id", "status", "reward", "reason", "artifacts"),
    trial_id={"type": "string"},
    job_id={"type": "string"},
    status={"type": "string"},
    reward={**_NUMBER, "description": "As the verifier wrote it; null when there is none (reason says why)."},
    reason=_NULL_TEXT,
    agent_outcome=_NULL_TEXT,
    cost=_OBJECT,
    usage=_OBJECT,
    simulated={"type": "boolean", "description": "True: its model calls were answered from a script."},
    structured_result={**_NULL_OBJECT, "description": "Untrusted: details were written by the evaluated run."},
    artifacts=DATASETS,
)
