"""All settings of the server, read once by the composition root from `TOLLBAR_*` variables and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from platformdirs import user_data_path
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

DOCKER_OFF: Final = "off"


class Settings(BaseSettings):
    """What an operator can set; each field's description is its documentation, with its unit."""

    model_config = SettingsConfigDict(env_prefix="TOLLBAR_", extra="ignore", frozen=True)

    data_dir: Annotated[Path, Field(description="Folder of the database, artifacts, caches and the local key.")] = (
        user_data_path("tollbar")
    )
    database_url: Annotated[
        str | None,
        Field(description="Your own PostgreSQL (postgresql://USER:PASSWORD@HOST/DB); absent: the embedded server."),
    ] = None
    vault_key: Annotated[
        SecretStr | None,
        Field(
            description="Key of the vault (32 bytes, base64), where several machines share a database; absent: "
            "the file vault.key of the data directory."
        ),
    ] = None
    artifacts_url: Annotated[
        str | None,
        Field(
            description="Storage of artifacts and datasets that several machines share: s3://BUCKET/PREFIX (with"
            " AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, ...), gs://, az:// or file:///FOLDER; absent: a folder"
            " of the data directory."
        ),
    ] = None
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 takes any free one.")] = 8787
    public_url: Annotated[str | None, Field(description="Origin under which clients reach the server.")] = None
    allowed_hosts: Annotated[tuple[str, ...], Field(description="Further Host values to answer to.")] = ()
    allowed_origins: Annotated[tuple[str, ...], Field(description="Further browser origins to answer to.")] = ()
    slots: Annotated[int, Field(ge=1, le=256, description="Trials that run at once in one worker.")] = 4
    sandbox_uid: Annotated[int, Field(ge=1, description="Uid of sandboxes when the server runs as root.")] = 64000
    docker_host: Annotated[
        str | None,
        Field(
            description="Docker engine of Docker sandboxes (unix:///PATH, tcp://HOST:PORT); whoever may use it is root"
            " on its machine. Absent: what DOCKER_HOST and Docker's own settings say; off: no Docker sandboxes here."
        ),
    ] = None
    docker_runtime: Annotated[
        str | None,
        Field(description="Runtime of Docker sandboxes that the engine must have, such as runsc; absent: its own."),
    ] = None
    pg_uid: Annotated[
        int | None, Field(description="Uid of the embedded database where root may not make user namespaces.")
    ] = None
    beat_s: Annotated[float, Field(gt=0, description="Seconds between two beats of a worker.")] = 5.0
    self_kill_s: Annotated[
        float, Field(gt=0, description="Seconds without a beat after which a worker kills its own sandboxes.")
    ] = 20.0
    dead_after_s: Annotated[
        float, Field(gt=0, description="Seconds without a beat after which a worker's work is handed over.")
    ] = 30.0
    keep_artifacts_days: Annotated[
        int | None,
        Field(
            ge=1,
            description="Days after a Job's end for which files of its Trials are kept; later they are removed, and "
            "the Trials cannot be graded again. Absent: for ever.",
        ),
    ] = None
    keep_engine_days: Annotated[
        int, Field(ge=1, description="Days for which rows of the engine about ended work are kept.")
    ] = 7
    keep_cache_days: Annotated[
        int, Field(ge=2, description="Days for which an unused task stays unpacked on a machine.")
    ] = 7
    metrics_token: Annotated[
        SecretStr | None,
        Field(description="Bearer token with which /metrics is read, in Prometheus' text form; absent: there is none."),
    ] = None
    requests_per_minute: Annotated[int, Field(ge=1, description="Requests a minute for one key.")] = 200

    @model_validator(mode="after")
    def _separate_uids(self) -> Settings:
        if self.pg_uid is not None and self.pg_uid == self.sandbox_uid:
            msg = "pg_uid and sandbox_uid must differ: a sandbox could otherwise reach the database's socket"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _liveness_in_order(self) -> Settings:
        if not 2 * self.beat_s < self.self_kill_s < self.dead_after_s:
            msg = "the liveness settings need 2 * beat_s < self_kill_s < dead_after_s"
            raise ValueError(msg)
        return self
