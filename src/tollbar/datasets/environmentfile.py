"""Reads `[environment]` and `[verifier.environment]`: resources, legacy sizes, MCP servers, healthcheck."""

from __future__ import annotations

import re
from typing import Final

from tollbar.datasets.network import read_baseline
from tollbar.datasets.reader import Table, nonempty, or_default
from tollbar.datasets.taskmodel import EnvironmentConfig, Healthcheck, McpServer, TaskOs, Tpu, Transport
from tollbar.datasets.variables import header_problem

_SIZE: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)([GMK])\s*\Z", re.IGNORECASE)
_PER_MB: Final = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_TOPOLOGY: Final = re.compile(r"[1-9]\d*(x[1-9]\d*){1,2}\Z")


def read_environment(table: Table) -> EnvironmentConfig:
    """Returns the table with its defaults; faults are recorded and their keys read as absent."""
    config = EnvironmentConfig(
        build_timeout_s=or_default(table.number("build_timeout_sec", above=0), 600.0),
        docker_image=table.text("docker_image", check=nonempty),
        os=or_default(table.word("os", TaskOs, any_case=True), TaskOs.LINUX),
        cpus=_cpus(table),
        memory_mb=_megabytes(table, "memory_mb", "memory"),
        storage_mb=_megabytes(table, "storage_mb", "storage"),
        gpus=table.whole("gpus", at_least=0),
        gpu_types=table.texts("gpu_types"),
        tpu=_tpu(table),
        env=table.text_map("env"),
        workdir=table.text("workdir", check=nonempty),
        skills_dir=table.text("skills_dir", check=nonempty),
        network=read_baseline(table),
        mcp_servers=tuple(server for entry in table.tables("mcp_servers") if (server := _mcp_server(entry))),
        healthcheck=read_healthcheck(table),
    )
    if config.os is TaskOs.LINUX and config.workdir is not None and not config.workdir.startswith("/"):
        table.problem("workdir", "must be an absolute path", allowed="an absolute path")
    table.close()
    return config


def _cpus(table: Table) -> int | float | None:
    value = table.number("cpus", above=0)
    return int(value) if value is not None and value.is_integer() else value


def _megabytes(table: Table, key: str, legacy: str) -> int | None:
    """Reads a size in MiB, or its legacy form `2G`; the two must agree."""
    written = table.whole(key, above=0)
    text = table.text(legacy)
    if text is None:
        return written
    match = _SIZE.match(text)
    if match is None:
        table.problem(legacy, "must be a number and G, M or K", allowed='e.g. "2G"')
        return written
    size = int(float(match[1]) * _PER_MB[match[2].upper()])
    if size <= 0:
        table.problem(legacy, "must be at least 1 MB", allowed="above 0")
        return written
    if written is not None and written != size:
        table.problem(legacy, f"says {size} MB, which is not what {key} says; drop {legacy}", allowed=str(written))
    return or_default(written, size)


def _tpu(table: Table) -> Tpu | None:
    entry = table.table("tpu")
    if entry is None:
        return None
    kind = entry.text("type", required=True, check=nonempty)
    topology = entry.text("topology", required=True, check=_topology_problem)
    entry.close()
    return None if kind is None or topology is None else Tpu(kind, topology.strip())


def _topology_problem(text: str) -> str | None:
    return None if _TOPOLOGY.match(text.strip()) else "must be NxM or NxMxK with positive whole numbers"


def _mcp_server(table: Table) -> McpServer | None:
    name = table.text("name", required=True, check=nonempty)
    transport = _transport(table)
    server = McpServer(
        name=name or "",
        transport=transport,
        url=table.text("url"),
        command=table.text("command"),
        args=table.texts("args") or (),
        headers=_headers(table, transport),
    )
    needed = "command" if transport is Transport.STDIO else "url"
    if not (server.command if transport is Transport.STDIO else server.url):
        table.problem(needed, f'is needed with transport = "{transport.value}"')
    table.close()
    return None if name is None else server


def _transport(table: Table) -> Transport:
    if table.raw_value("transport") == "http":
        return Transport.STREAMABLE_HTTP
    return or_default(table.word("transport", Transport), Transport.SSE)


def _headers(table: Table, transport: Transport) -> dict[str, str]:
    headers = table.text_map("headers")
    if headers and transport is Transport.STDIO:
        table.problem("headers", "is only for the HTTP transports")
    for name, value in headers.items():
        broken = header_problem(name, value)
        if broken is not None:
            table.document.add((*table.path, "headers", name), broken)
    return headers


def read_healthcheck(table: Table) -> Healthcheck | None:
    """Reads the table `healthcheck` below `table`."""
    entry = table.table("healthcheck")
    if entry is None:
        return None
    command = entry.text("command", required=True, check=nonempty)
    check = Healthcheck(
        command=command or "",
        interval_s=or_default(entry.number("interval_sec", at_least=0), 5.0),
        timeout_s=or_default(entry.number("timeout_sec", above=0), 30.0),
        start_period_s=or_default(entry.number("start_period_sec", at_least=0), 0.0),
        start_interval_s=or_default(entry.number("start_interval_sec", at_least=0), 5.0),
        retries=or_default(entry.whole("retries", above=0), 3),
    )
    entry.close()
    return None if command is None else check
