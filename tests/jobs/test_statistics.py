"""Statistics against the worked examples of the evaluation guide and against enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbar.jobs import statistics
from tollbar.jobs.statistics import TaskScore


def task(*rewards: float) -> TaskScore:
    """One task of these scored rewards; a reward of at least 1 passes."""
    n = len(rewards)
    return TaskScore(n, sum(r >= 1 for r in rewards), math.fsum(rewards) / n if n else 0.0)


@pytest.mark.requirement("G-EVAL-18.15")
@pytest.mark.parametrize(
    ("c", "at", "hat"),
    [
        (0, "0 0 0 0 0", "0 0 0 0 0"),
        (1, "1/5 2/5 3/5 4/5 1", "1/5 0 0 0 0"),
        (2, "2/5 7/10 9/10 1 1", "2/5 1/10 0 0 0"),
        (3, "3/5 9/10 1 1 1", "3/5 3/10 1/10 0 0"),
        (4, "4/5 1 1 1 1", "4/5 3/5 2/5 1/5 0"),
        (5, "1 1 1 1 1", "1 1 1 1 1"),
    ],
)
def test_five_attempts_give_the_exact_pass_at_k_and_pass_hat_k(c: int, at: str, hat: str) -> None:
    for k, (want_at, want_hat) in enumerate(zip(at.split(), hat.split(), strict=True), start=1):
        assert statistics.pass_at_k(5, c, k) == pytest.approx(float(Fraction(want_at)), abs=1e-15)
        assert statistics.pass_hat_k(5, c, k) == pytest.approx(float(Fraction(want_hat)), abs=1e-15)


def test_large_samples_do_not_lose_digits() -> None:
    assert statistics.pass_at_k(200, 10, 10) == pytest.approx(0.408547866081417, abs=1e-14)
    assert statistics.pass_at_k(200, 10, 100) == pytest.approx(0.999228973937282, abs=1e-14)


@pytest.mark.requirement("G-EVAL-18.15")
@pytest.mark.parametrize("n", range(1, 7))
def test_both_measures_equal_the_share_of_k_subsets_by_enumeration(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        attempts = [1] * c + [0] * (n - c)
        subsets = list(itertools.combinations(attempts, k))
        assert statistics.pass_at_k(n, c, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))
        assert statistics.pass_hat_k(n, c, k) == pytest.approx(sum(all(s) for s in subsets) / len(subsets))


@pytest.mark.requirement("G-EVAL-18.11")
def test_fewer_attempts_than_k_have_no_value() -> None:
    assert statistics.pass_at_k(2, 2, 3) is None
    assert statistics.pass_hat_k(2, 2, 3) is None


@pytest.mark.requirement("G-EVAL-18.11", "G-EVAL-18.41")
def test_tasks_that_lost_attempts_weigh_as_much_as_complete_ones() -> None:
    tasks = [task(1, 1, 1, 0, 1), task(0, 0, 1, 0), task(1, 1, 1, 1, 1), task(0.5, 0)]
    scores = statistics.score(tasks, attempts=5, n_total=20)
    assert scores.score == pytest.approx(0.575)
    assert scores.pass_rate == pytest.approx(0.5125)
    assert (scores.n_scored, scores.n_total) == (16, 20)
    assert scores.pass_at == pytest.approx({1: 0.5125, 2: 0.625, 3: 0.916667, 4: 1, 5: 1}, abs=1e-6)
    assert scores.pass_hat == pytest.approx({1: 0.5125, 2: 0.4, 3: 0.466667, 4: 0.4, 5: 0.5}, abs=1e-6)
    assert scores.pass_tasks == {1: 4, 2: 4, 3: 3, 4: 3, 5: 2}
    assert scores.score_interval == (0.0, 1.0)
    assert statistics.standard_error([0.8, 0.25, 1, 0.25]) == pytest.approx(0.192029, abs=1e-6)


@pytest.mark.requirement("G-EVAL-18.41")
def test_a_complete_job_gives_the_published_interval() -> None:
    rows = ["1111", "1011", "0000", "1100", "1110", "0100"]
    scores = statistics.score([task(*map(float, row)) for row in rows], attempts=4, n_total=24)
    assert scores.score == scores.pass_rate == pytest.approx(0.541667, abs=1e-6)
    assert scores.score_interval == pytest.approx((0.155485, 0.927849), abs=1e-6)
    assert scores.pass_at == pytest.approx({1: 0.541667, 2: 0.722222, 3: 0.791667, 4: 0.833333}, abs=1e-6)
    assert scores.pass_hat == pytest.approx({1: 0.541667, 2: 0.361111, 3: 0.25, 4: 0.166667}, abs=1e-6)


@pytest.mark.requirement("G-EVAL-18.41")
def test_the_vector_of_the_contract_page() -> None:
    tasks = [task(1, 1, 1), task(1, 0, 0.5), task(0, 0), task(1, 0.5, 0)]
    scores = statistics.score(tasks, attempts=3, n_total=12)
    assert scores.score == pytest.approx(0.5)
    assert scores.pass_rate == pytest.approx(0.416667, abs=1e-6)
    assert scores.pass_at == pytest.approx({1: 0.416667, 2: 0.583333, 3: 1.0}, abs=1e-6)
    assert scores.pass_hat == pytest.approx({1: 0.416667, 2: 0.25, 3: 0.333333}, abs=1e-6)
    assert scores.pass_tasks == {1: 4, 2: 4, 3: 3}
    assert statistics.standard_error([1, 0.5, 0, 0.5]) == pytest.approx(0.204124, abs=1e-6)


@pytest.mark.parametrize(
    ("x", "n", "low", "high"),
    [
        (8, 10, 0.4901624715, 0.9433178485),
        (6, 6, 0.6096657121, 1),
        (0, 10, 0, 0.2775327999),
        (50, 100, 0.4038315304, 0.5961684696),
        (133, 133, 0.9719276683, 1),
    ],
)
def test_wilson_intervals_equal_published_values(x: int, n: int, low: float, high: float) -> None:
    assert statistics.wilson(x, n) == pytest.approx((low, high), abs=1e-10)
    assert statistics.interval([1.0] * x + [0.0] * (n - x)) == pytest.approx((low, high), abs=1e-10)


@pytest.mark.parametrize(
    ("df", "value"),
    [
        (1, 12.706204736174694),
        (2, 4.302652729749462),
        (3, 3.1824463052837078),
        (4, 2.7764451051977934),
        (5, 2.5705818356363146),
        (7, 2.364624251592784),
        (9, 2.262157162798205),
        (19, 2.0930240544083087),
        (99, 1.9842169515864174),
    ],
)
def test_t_quantiles_equal_published_values(df: int, value: float) -> None:
    assert statistics.t_quantile(df) == pytest.approx(value, rel=2e-12)


def test_equal_values_that_are_neither_0_nor_1_have_no_interval() -> None:
    assert statistics.interval([0.5, 0.5, 0.5]) is None
    assert statistics.interval([0.5]) is None


def test_rewards_outside_0_to_1_are_not_clipped() -> None:
    low, high = statistics.interval([-3.0, 2.0]) or (0.0, 0.0)
    half = 12.706204736174694 * 2.5
    assert (low, high) == pytest.approx((-0.5 - half, -0.5 + half))


REWARDS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=6)


@given(st.lists(REWARDS, min_size=1, max_size=5), st.randoms())
def test_the_order_of_attempts_changes_nothing(rows: list[list[float]], random: object) -> None:
    before = statistics.score([task(*row) for row in rows], attempts=6, n_total=30)
    for row in rows:
        random.shuffle(row)  # type: ignore[attr-defined] # hypothesis hands in a Random
    assert statistics.score([task(*row) for row in rows], attempts=6, n_total=30) == before


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_pass_at_k_rises_and_pass_hat_k_falls_with_k_on_complete_data(rows: list[list[float]]) -> None:
    scores = statistics.score([task(*row) for row in rows], attempts=4, n_total=4 * len(rows))
    at = [scores.pass_at[k] for k in range(1, 5)]
    hat = [scores.pass_hat[k] for k in range(1, 5)]
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(at))
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(hat))
    assert at[0] == hat[0] == scores.pass_rate


@given(st.lists(REWARDS, min_size=1, max_size=5))
def test_a_task_without_a_scored_attempt_changes_only_coverage(rows: list[list[float]]) -> None:
    tasks = [task(*row) for row in rows]
    alone = statistics.score(tasks, attempts=6, n_total=30)
    beside = statistics.score([*tasks, TaskScore(0, 0, 0.0)], attempts=6, n_total=36)
    assert (beside.score, beside.pass_rate, beside.pass_at) == (alone.score, alone.pass_rate, alone.pass_at)
    assert (beside.n_scored, beside.n_total) == (alone.n_scored, 36)


def test_no_scored_attempt_at_all_has_no_score() -> None:
    scores = statistics.score([], attempts=2, n_total=4)
    assert (scores.score, scores.pass_rate, scores.score_interval) == (None, None, None)
    assert scores.pass_at == {1: None, 2: None}
