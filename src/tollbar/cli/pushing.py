"""`tollbar datasets push`, and the upload that `jobs submit ./DIR` begins with."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from tollbar.cli.datasets import version_rows
from tollbar.cli.digests import rewritten, write_listing
from tollbar.cli.folders import Folder, open_folder
from tollbar.cli.output import Output
from tollbar.cli.problems import Usage
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.client.errors import ApiError
from tollbar.client.packing import Packed, pack_folder
from tollbar.client.schemas import DatasetVersion

if TYPE_CHECKING:
    from tollbar.client import Client

_BAD_UPLOAD: Final = "UNSUPPORTED_TASK_FORMAT"
_MAX_ROUNDS: Final = 50
"""One answer names at most some hundred digests, so a large dataset takes several."""


def push_dataset(
    folder: Annotated[Path, Parameter(help="The dataset's folder.")],
    /,
    *,
    name: Annotated[str | None, Parameter(help="NAMESPACE/NAME; default: what dataset.toml says.")] = None,
    version: Annotated[str | None, Parameter(help="Label of the version; default: what dataset.toml says.")] = None,
    visibility: Annotated[
        Literal["private", "public"] | None, Parameter(help="Who may use it; a new version is private by default.")
    ] = None,
    update_digests: Annotated[
        bool, Parameter(negative="", show_default=False, help="First bring the digests in dataset.toml up to date.")
    ] = False,
    options: Global = NO_OPTIONS,
) -> None:
    """Publish a folder as an immutable version of a dataset; the same content again is the same version.

    Example: tollbar datasets push ./checkout --name team/checkout --version 2
    """
    session = Session(options)
    source = open_folder(folder)
    wanted = name or source.name
    if wanted is None:
        raise Usage(f"nothing in {folder} says what it is called", fix="name it: --name NAMESPACE/NAME")
    with session.client() as client:
        upload = Upload(client, session.out, source)
        if update_digests:
            published, is_new = upload.push_updating(wanted, version, visibility)
        else:
            published, is_new = upload.push(wanted, version, visibility)
    if not is_new:
        session.out.note("nothing to do: this content is published under this version already")
    session.out.record(published, version_rows(published))


class Upload:
    """Sends one folder to one server."""

    def __init__(self, client: Client, out: Output, folder: Folder) -> None:
        self._client = client
        self._out = out
        self._folder = folder

    def push(self, name: str, version: str | None, visibility: str | None) -> tuple[DatasetVersion, bool]:
        """Publishes the folder as it is; returns the version and whether it is new."""
        with tempfile.TemporaryFile() as file:
            packed = pack_folder(self._folder.path, file)
            self._tell(packed)
            file.seek(0)
            return self._client.push_dataset(name, file, packed.size, version=version, visibility=visibility)

    def push_updating(self, name: str, version: str | None, visibility: str | None) -> tuple[DatasetVersion, bool]:
        """Publishes the folder after its `dataset.toml` has the digests that the server finds."""
        for _ in range(_MAX_ROUNDS):
            try:
                return self.push(name, version, visibility)
            except ApiError as error:
                if error.code != _BAD_UPLOAD or not self._update(error):
                    raise
        raise Usage(f"{self._folder.path} changes while its digests are brought up to date")

    def _update(self, refusal: ApiError) -> bool:
        """Rewrites the digests that a refusal names; says whether they were all that it named."""
        if self._folder.listing is None:
            return False
        problems = refusal.body.get("problems")
        listing = open_folder(self._folder.path).listing or b""
        update = rewritten(listing.decode("utf-8"), problems if isinstance(problems, list) else [])
        if update is None:
            return False
        write_listing(self._folder.path, update.text)
        for change in update.changes:
            self._out.note(f"dataset.toml, {change}")
        return True

    def push_private(self) -> DatasetVersion:
        """Publishes the folder as a private version that is labelled by its content."""
        name = self._folder.name or self._folder.fallback_name()
        replaced: Mapping[str, bytes] = self._folder.without_version()
        with tempfile.TemporaryFile() as file:
            packed = pack_folder(self._folder.path, file, replace=replaced)
            self._tell(packed)
            file.seek(0)
            label = f"local-{packed.sha256[:16]}"
            version, _ = self._client.push_dataset(name, file, packed.size, version=label, visibility="private")
        self._out.note(f"pushed {self._folder.path} as {version['name']}@{version['version']}")
        return version

    def _tell(self, packed: Packed) -> None:
        for path in packed.left_out:
            self._out.note(f"left out: {path} (a link to a folder)")
