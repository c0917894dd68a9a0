"""Where blobs are kept: a folder of this machine, or an object store that several machines share."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import from_url

from tollbar.artifacts.blobs import BlobStore, local_blobs
from tollbar.artifacts.errors import InvalidStoreUrl

_SHARED: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss"})
_RETRY: Final[Any] = {"max_retries": 10, "retry_timeout": timedelta(seconds=60)}
# Plain http is for a store on one's own network; the endpoint's URL says which it is.
_CLIENT: Final[Any] = {"allow_http": True, "timeout": "60s", "connect_timeout": "5s"}


def open_blobs(url: str | None, folder: Path) -> BlobStore:
    """Returns the store of that URL (`s3://bucket/prefix`, `file:///folder`), or of `folder` when there is none.

    Credentials, region and endpoint come from the cloud's usual variables (`AWS_ACCESS_KEY_ID`, ...). Nothing is
    asked yet. Raises `InvalidStoreUrl`.
    """
    if url is None:
        return local_blobs(folder)
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise InvalidStoreUrl("a folder needs an absolute path, as in file:///srv/tollbar.")
        return local_blobs(Path(unquote(parts.path)))
    if parts.scheme not in _SHARED or not parts.netloc:
        raise InvalidStoreUrl(f"{parts.scheme or 'no scheme'} is no storage that tollbar knows.")
    try:
        return BlobStore(from_url(url, client_options=_CLIENT, retry_config=_RETRY))
    except (BaseError, ValueError) as error:
        raise InvalidStoreUrl(str(error).strip().partition("\n")[0]) from error
