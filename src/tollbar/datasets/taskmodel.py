"""What a `task.toml` says, after reading: every key with its default, legacy forms already converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tollbar.datasets.artifactlist import ArtifactEntry
from tollbar.datasets.network import NetworkPolicy

NEWEST_SCHEMA: Final = "1.4"
SCHEMAS: Final = ("1.0", "1.1", "1.2", "1.3", "1.4")
DEFAULT_VERIFIER_TIMEOUT_S: Final = 600.0


class TaskOs(StrEnum):
    """The operating system that a task needs."""

    LINUX = "linux"
    WINDOWS = "windows"

    @property
    def script_suffix(self) -> str:
        return ".sh" if self is TaskOs.LINUX else ".bat"


class VerifierMode(StrEnum):
    """Where the verifier runs: in the agent's sandbox, or in a fresh one on the sealed artifacts."""

    SHARED = "shared"
    SEPARATE = "separate"


class RewardStrategy(StrEnum):
    """How the reward of a multi-step task follows from its steps."""

    MEAN = "mean"
    FINAL = "final"


class Transport(StrEnum):
    """How an MCP server of the task is reached."""

    SSE = "sse"
    STREAMABLE_HTTP = "streamable-http"
    STDIO = "stdio"


@dataclass(frozen=True)
class Author:
    """Who wrote a task or dataset."""

    name: str
    email: str | None = None


@dataclass(frozen=True)
class PackageInfo:
    """The table `[task]`."""

    name: str
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True)
class Healthcheck:
    """When a sandbox counts as ready; times in seconds."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True)
class McpServer:
    """An MCP server that the agent gets."""

    name: str
    transport: Transport = Transport.SSE
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Tpu:
    """A slice of TPUs."""

    type: str
    topology: str


@dataclass(frozen=True)
class EnvironmentConfig:
    """A table `[environment]` or `[verifier.environment]`; None means that the task does not say."""

    build_timeout_s: float = 600.0
    docker_image: str | None = None
    os: TaskOs = TaskOs.LINUX
    cpus: int | float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: Tpu | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str | None = None
    skills_dir: str | None = None
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    mcp_servers: tuple[McpServer, ...] = ()
    healthcheck: Healthcheck | None = None


@dataclass(frozen=True)
class AgentConfig:
    """The table `[agent]`; `network` None means no override of the environment's policy."""

    timeout_s: float | None = None
    user: str | int | None = None
    network: NetworkPolicy | None = None


@dataclass(frozen=True)
class CollectHook:
    """A command that runs after the agent and before artifacts are taken."""

    command: str
    service: str = "main"
    timeout_s: float = 60.0
    user: str | int | None = None


@dataclass(frozen=True)
class VerifierConfig:
    """The table `[verifier]`."""

    timeout_s: float = DEFAULT_VERIFIER_TIMEOUT_S
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str | int | None = None
    mode: VerifierMode | None = None
    environment: EnvironmentConfig | None = None
    network: NetworkPolicy | None = None
    collect: tuple[CollectHook, ...] = ()

    def resolved_mode(self) -> VerifierMode | None:
        """Returns the mode that this table decides by itself, or None."""
        if self.mode is None and self.environment is not None:
            return VerifierMode.SEPARATE
        return self.mode


@dataclass(frozen=True)
class Step:
    """One entry of `[[steps]]`."""

    name: str
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    min_reward: float | Mapping[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: tuple[ArtifactEntry, ...] = ()

    @property
    def folder(self) -> str:
        return f"steps/{self.name}"


@dataclass(frozen=True)
class OwnKeys:
    """The table `[metadata.tollbar]` of a task; decimals as canonical text."""

    weights: Mapping[str, str] = field(default_factory=dict[str, str])
    pass_threshold: str | None = None
    verifier_model: str | None = None
    keep_agent_processes: bool = False


@dataclass(frozen=True)
class TaskConfig:
    """A whole `task.toml`."""

    schema_version: str = NEWEST_SCHEMA
    source: str | None = None
    artifacts: tuple[ArtifactEntry, ...] = ()
    reward_strategy: RewardStrategy | None = None
    """None for a task without steps."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: OwnKeys = OwnKeys()
    package: PackageInfo | None = None
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    solution_env: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: tuple[Step, ...] = ()

    def verifier_mode(self, step: Step | None = None) -> VerifierMode:
        """Returns where the verifier of the task or step runs: its own word, the task's, else shared."""
        own = step.verifier.resolved_mode() if step is not None else None
        return own or self.verifier.resolved_mode() or VerifierMode.SHARED
