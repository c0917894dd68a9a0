"""A typed, synchronous client of tollbar's HTTP interface, for the command line and for scripts.

    with Client("http://127.0.0.1:8787", key) as client:
        job, _ = client.submit_job({"dataset": "demo/mini@1", "max_cost_usd": "0.05"})

The HTTP library is loaded when `Client` is first named, so that a command that calls no server does not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tollbar.client.errors import (
    ApiError,
    ClientError,
    DownloadDamaged,
    FolderRefused,
    ServerUnreachable,
    UnexpectedAnswer,
    UnusableSetting,
)
from tollbar.client.follow import Patience
from tollbar.client.packing import Packed, PackLimits, pack_folder

if TYPE_CHECKING:
    from tollbar.client.api import Client, every

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "DownloadDamaged",
    "FolderRefused",
    "PackLimits",
    "Packed",
    "Patience",
    "ServerUnreachable",
    "UnexpectedAnswer",
    "UnusableSetting",
    "every",
    "pack_folder",
]


def __getattr__(name: str) -> Any:
    if name in {"Client", "every"}:
        return getattr(import_module("tollbar.client.api"), name)
    raise AttributeError(name)
