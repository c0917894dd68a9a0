"""A typed, synchronous client of tollbar's HTTP interface, for the command line and for scripts.

    with Client("http://127.0.0.1:8787", key) as client:
        job, _ = client.submit_job({"dataset": "demo/mini@1", "max_cost_usd": "0.05"})

What is heavy is loaded when it is first named, so that a command that calls no server does not pay for it.
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

if TYPE_CHECKING:
    from tollbar.client.api import Client, every
    from tollbar.client.follow import Patience
    from tollbar.client.packing import Packed, PackLimits, pack_folder

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


_PLACES = {
    "Client": "api",
    "every": "api",
    "Patience": "follow",
    "PackLimits": "packing",
    "Packed": "packing",
    "pack_folder": "packing",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"tollbar.client.{_PLACES[name]}"), name)
    raise AttributeError(name)
