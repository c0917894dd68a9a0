"""One function for every result: compact JSON as text and the same object as structured content, always equal."""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, TextContent

from tollbar.kit.errors import TollbarError
from tollbar.kit.jsonio import compact


def success(body: dict[str, Any]) -> CallToolResult:
    """Returns the result of a tool that did its work."""
    return CallToolResult(content=[TextContent(type="text", text=compact(body))], structured_content=body)


def failure(error: TollbarError) -> CallToolResult:
    """Returns a refusal or failure as a tool result: the error object of HTTP, with its status."""
    body = {**error.body(), "status": error.status}
    return CallToolResult(
        content=[TextContent(type="text", text=compact(body))], structured_content=body, is_error=True
    )
