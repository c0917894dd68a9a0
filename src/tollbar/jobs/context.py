"""What the rules of Jobs use beside a session and an actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tollbar.engine.port import Engine
from tollbar.jobs.models import ModelOffers
from tollbar.jobs.pump import PROJECT_LIMIT
from tollbar.kit.clock import Clock
from tollbar.sandboxes.interface import Capabilities


@dataclass(frozen=True)
class JobsContext:
    """What the rules of Jobs use beside a session and an actor."""

    engine: Engine
    clock: Clock
    origin: str
    """Public origin, for links."""
    capabilities: Mapping[str, Capabilities] = field(default_factory=dict[str, Capabilities])
    """What the backends that work here can enforce, by their names; of others only a Trial's worker knows it."""
    models: ModelOffers | None = None
    """What models cost and who serves them; None: this process does not know."""
    project_running: int = PROJECT_LIMIT
    """Trials of one project that the workers run at once."""
    max_running: int = 64
    """Trials of one Job that may run at once."""
    dead_after_s: float = 30.0
    """How long a worker may be silent before nobody counts on it."""
