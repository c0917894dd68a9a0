"""The MCP interface: /v1/mcp for coding agents."""
