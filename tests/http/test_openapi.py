"""The OpenAPI document: complete, honest about rights, and one schema for every error."""

from __future__ import annotations

import re

ROUTES = {
    "GET /me", "GET /workspaces", "GET /workspaces/{}/projects",
    "GET /job", "POST /job", "GET /job/{}", "GET /job/{}/result",
    "GET /job/{}/logs", "GET /job/{}/events", "GET /trials/{}/logs",
    "POST /job/{}/stop", "POST /job/{}/pause",
    "POST /job/{}/resume", "POST /job/{}/wake",
    "GET /trials", "GET /trials/{}", "GET /trials/{}/detail", "GET /trials/{}/result", "GET /trials/{}/artifacts",
    "GET /trials/{}/artifacts/{}/content", "GET /trials/{}/artifacts/{}/window",
    "GET /datasets", "GET /datasets/{}", "GET /datasets/{}/versions", "POST /datasets/{}/versions",
    "POST /datasets/{}/versions/{}/check",
    "GET /datasets/{}/versions/{}", "GET /datasets/{}/versions/{}/tasks",
    "GET /runners", "GET /profiles", "GET /profiles/{}/versions", "GET /profiles/{}/detail", "GET /openapi.json",
    "GET /workspaces/{}/projects/{}", "GET /workspaces/{}/projects/{}/limits",
    "GET /billing/account", "GET /billing/usage", "GET /billing/ledger", "GET /billing/prices",
    "GET /billing/model-prices",
}  # fmt: skip


async def document_of(world, prefix="/v1"):
    """Returns the served document."""
    async with world.client(None) as client:
        return (await client.get(f"{prefix}/openapi.json")).json()


def operations(document):
    """Yields (method, path, operation)."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


async def test_it_lists_every_route_once_below_v1(world):
    document = await document_of(world)
    listed = {f"{method} {re.sub(r'{[^}]*}', '{}', path)}" for method, path, _ in operations(document)}
    assert {route.replace(" /v1", " ") for route in listed} == ROUTES
    assert await document_of(world, "/api/v1") == document


async def test_every_operation_names_its_rights_in_words(world):
    document = await document_of(world)
    for method, path, operation in operations(document):
        if path == "/v1/openapi.json":
            assert operation["security"] == []
        elif operation["x-capabilities"]:
            for name in operation["x-capabilities"]:
                assert f"`{name}`" in operation["description"], (method, path)
        else:
            assert "Needs any key." in operation["description"]
    content = document["paths"]["/v1/trials/{trial_id}/artifacts/{artifact_id}/content"]["get"]
    assert content["x-capabilities"] == ["jobs.read", "artifacts.download"]


async def test_every_refusal_has_the_one_error_schema(world):
    document = await document_of(world)
    for _, _, operation in operations(document):
        for status in ("4XX", "5XX"):
            schema = operation["responses"][status]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorObject"}
        assert "422" not in operation["responses"]
    assert {"code", "message"} == set(document["components"]["schemas"]["ErrorObject"]["required"])


async def test_every_path_parameter_is_declared_and_every_operation_has_its_own_id(world):
    document = await document_of(world)
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    for _, path, operation in operations(document):
        declared = {item["name"] for item in operation.get("parameters", []) if item["in"] == "path"}
        assert declared == set(re.findall(r"{([^}]*)}", path))


async def test_there_are_no_pages_for_it(world):
    async with world.client() as client:
        for path in ("/docs", "/redoc", "/openapi.json", "/v1/docs"):
            assert (await client.get(path)).status_code == 404
