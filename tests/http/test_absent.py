"""Section 14 of the contract, row by row: what is not offered answers so that lists stay usable."""

from __future__ import annotations

import pytest
from tests.http.conftest import code_of


@pytest.mark.requirement("G-HTTP-16.12")
async def test_lists_of_what_is_not_offered_are_empty(ask):
    for path in ("/job/checkpoints", "/job/training-models", "/serving/profiles", "/adapters", "/endpoints"):
        for prefix in ("/v1", "/api/v1"):
            answer = await ask("GET", prefix + path)
            assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})


@pytest.mark.requirement("G-HTTP-16.12")
async def test_single_things_that_are_not_offered_are_404s_of_their_kind(ask):
    for method, path, code in (
        ("GET", "/job/checkpoints/download", "CHECKPOINT_NOT_FOUND"),
        ("DELETE", "/job/checkpoints/c1", "CHECKPOINT_NOT_FOUND"),
        ("GET", "/job/job_x/checkpoint/download", "CHECKPOINT_NOT_FOUND"),
        ("GET", "/serving/profiles/x", "SERVING_PROFILE_NOT_FOUND"),
        ("GET", "/adapters/x", "ADAPTER_NOT_FOUND"),
        ("GET", "/endpoints/x", "ENDPOINT_NOT_FOUND"),
        ("GET", "/endpoints/x/logs", "ENDPOINT_NOT_FOUND"),
        ("GET", "/trials/trial_x/training", "TRIAL_TRAINING_NOT_FOUND"),
        ("GET", "/trials/trial_x/metrics", "TRIAL_TRAINING_NOT_FOUND"),
        ("GET", "/trials/trial_x/checkpoints", "TRIAL_CHECKPOINTS_NOT_FOUND"),
        ("GET", "/agent-runs/rsi/x", "NOT_FOUND"),
        ("POST", "/job/job_x/Inference/chat", "NOT_FOUND"),
    ):
        answer = await ask(method, f"/v1{path}")
        assert (answer.status_code, code_of(answer)) == (404, code)


@pytest.mark.requirement("G-HTTP-16.12")
async def test_nothing_can_be_written_there(ask):
    for path in ("/serving/profiles", "/adapters", "/endpoints"):
        for method, end in (("POST", ""), ("PUT", "/x"), ("PATCH", "/x"), ("DELETE", "/x"), ("POST", "/x/stop")):
            answer = await ask(method, f"/v1{path}{end}", json={})
            assert (answer.status_code, code_of(answer)) == (422, "UNSUPPORTED_CAPABILITY")


@pytest.mark.requirement("G-HTTP-16.12")
async def test_submissions_of_other_types_are_refused(ask):
    for kind in ("train", "inference", "sandbox"):
        answer = await ask("POST", "/v1/job", json={"type": kind})
        assert (answer.status_code, code_of(answer)) == (422, "UNSUPPORTED_CAPABILITY")


async def test_projects_and_members_are_changed_by_people_alone(ask, world):
    project = f"/v1/workspaces/{world.actor.workspace_id}/projects/{world.actor.project_id}"
    for method, path in (
        ("PATCH", project),
        ("POST", f"{project}/archive"),
        ("PUT", f"{project}/members/ana"),
        ("DELETE", f"{project}/members/ana"),
    ):
        answer = await ask(method, path, headers={"If-Match": '"0"'}, json={})
        assert (answer.status_code, code_of(answer)) == (403, "HUMAN_SESSION_REQUIRED")
