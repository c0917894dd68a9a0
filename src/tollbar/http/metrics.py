"""What a process counts of its requests, in the form that Prometheus reads."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ELSEWHERE: Final = "other"


class Metrics:
    """The counts of one process. `token` None: nobody may read them."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token
        self._registry = CollectorRegistry(auto_describe=True)
        self._requests = Histogram(
            "tollbar_http_request_seconds",
            "Seconds from a request to the end of its answer.",
            ("method", "route", "status"),
            registry=self._registry,
        )

    @property
    def is_open(self) -> bool:
        """Says whether there is a token by which they are read."""
        return self._token is not None

    def may_read(self, authorization: str) -> bool:
        """Says whether a request's `Authorization` is that token."""
        scheme, _, given = authorization.partition(" ")
        if self._token is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.encode(), self._token.encode())

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request by its route, never by its path: ids would make a series of each."""
        route: Any = scope.get("route")
        path = getattr(route, "path", None) or _ELSEWHERE
        self._requests.labels(scope["method"], path, str(status)).observe(seconds)

    def text(self, gauges: Iterable[Gauge]) -> bytes:
        """Returns everything that was counted, and what was just looked up."""
        looked_up = CollectorRegistry(auto_describe=False)
        looked_up.register(_Once(gauges))
        return generate_latest(self._registry) + generate_latest(looked_up)


class Gauge:
    """A figure that was looked up: its name, what it means, the name of its label, and a value for each."""

    def __init__(self, name: str, meaning: str, label: str, values: dict[str, float]) -> None:
        self.family = GaugeMetricFamily(name, meaning, labels=[label])
        for value, figure in sorted(values.items()):
            self.family.add_metric([value], figure)


class _Once(Collector):
    def __init__(self, gauges: Iterable[Gauge]) -> None:
        self._gauges = list(gauges)

    def collect(self) -> Iterable[Metric]:
        return [gauge.family for gauge in self._gauges]
