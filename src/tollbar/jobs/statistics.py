"""Statistics as pure functions on plain numbers; nothing here knows of a database.

A task's attempts are averaged first, so the attempts of one task are one observation: that is the standard error
clustered by task. Only scored attempts ever enter; an attempt without a reward changes coverage and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Interval = tuple[float, float]

_Z: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
_SAME: Final = 1e-12


@dataclass(frozen=True)
class TaskScore:
    """What is known of one task: `n` scored attempts with mean reward `mean`, of which `passes` pass."""

    n: int
    passes: int
    mean: float

    @property
    def pass_share(self) -> float:
        return self.passes / self.n


@dataclass(frozen=True)
class Scores:
    """The scores of a Job. Every measure is None when no task has one."""

    score: float | None
    score_interval: Interval | None
    pass_rate: float | None
    pass_interval: Interval | None
    pass_at: dict[int, float | None]
    pass_hat: dict[int, float | None]
    pass_tasks: dict[int, int]
    n_scored: int
    n_total: int


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Returns the unbiased chance that at least one of `k` attempts passes: 1 - C(n-c, k) / C(n, k); None if n < k."""
    if n < k:
        return None
    whole = math.comb(n, k)
    return (whole - math.comb(n - c, k)) / whole


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Returns the unbiased chance that all of `k` attempts pass: C(c, k) / C(n, k); None if n < k."""
    return None if n < k else math.comb(c, k) / math.comb(n, k)


def score(tasks: Sequence[TaskScore], *, attempts: int, n_total: int) -> Scores:
    """Returns the scores of a Job over its tasks (those without a scored attempt may be left out or have n = 0)."""
    scored = [task for task in tasks if task.n > 0]
    means = [task.mean for task in scored]
    shares = [task.pass_share for task in scored]
    pass_at: dict[int, float | None] = {}
    pass_hat: dict[int, float | None] = {}
    pass_tasks: dict[int, int] = {}
    for k in range(1, attempts + 1):
        fit = [task for task in scored if task.n >= k]
        pass_tasks[k] = len(fit)
        pass_at[k] = mean([pass_at_k(task.n, task.passes, k) or 0.0 for task in fit])
        pass_hat[k] = mean([pass_hat_k(task.n, task.passes, k) or 0.0 for task in fit])
    return Scores(
        score=mean(means),
        score_interval=interval(means),
        pass_rate=mean(shares),
        pass_interval=interval(shares),
        pass_at=pass_at,
        pass_hat=pass_hat,
        pass_tasks=pass_tasks,
        n_scored=sum(task.n for task in scored),
        n_total=n_total,
    )


def mean(values: Sequence[float]) -> float | None:
    """Returns the mean, summed without rounding on the way; None for no values."""
    return math.fsum(values) / len(values) if values else None


def standard_error(values: Sequence[float]) -> float | None:
    """Returns sqrt(sum (x - mean)^2 / (m (m - 1))) over the m task values; None when m < 2."""
    m = len(values)
    if m < 2:
        return None
    middle = math.fsum(values) / m
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (m * (m - 1)))


def interval(values: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the mean of task values.

    All values 0 or 1: Wilson's, because the spread between tasks says nothing at 0 of m or m of m. Otherwise
    mean +- t(0.975, m - 1) x standard error, clipped to 0..1 when every value lies there. None when m < 2 or
    when all values are equal (and not 0 or 1).
    """
    m = len(values)
    if m and all(value in {0.0, 1.0} for value in values):
        return wilson(sum(1 for value in values if value == 1.0), m)
    error = standard_error(values)
    if error is None or max(values) - min(values) <= _SAME:
        return None
    middle = math.fsum(values) / m
    half = t_quantile(m - 1) * error
    low, high = middle - half, middle + half
    if all(0.0 <= value <= 1.0 for value in values):
        return max(0.0, low), min(1.0, high)
    return low, high


def wilson(x: int, n: int) -> Interval:
    """Returns Wilson's 95 % interval for `x` of `n`."""
    share = x / n
    scale = 1 + _Z * _Z / n
    centre = (share + _Z * _Z / (2 * n)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    return (0.0 if x == 0 else centre - half), (1.0 if x == n else centre + half)


def t_quantile(df: int) -> float:
    """Returns t(0.975, df) by inverting the incomplete beta function with bisection."""
    low, high = 0.0, 1.0
    while _t_tail(high, df) > 0.05:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        if _t_tail(middle, df) > 0.05:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_tail(t: float, df: int) -> float:
    """Returns the two-sided tail of Student's t: I_x(df/2, 1/2) at x = df / (df + t^2)."""
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x in {0.0, 1.0}:
        return x
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Lentz's continued fraction for the incomplete beta function (DLMF 8.17.22)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return result
