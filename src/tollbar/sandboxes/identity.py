"""As whom tenants run: a supervisor that is root drops to one unprivileged uid before any namespace exists."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """The uid and gid of every process of a tenant on the host; `drop` says that the supervisor is another user."""

    uid: int
    gid: int
    drop: bool

    def own(self, descriptor: int) -> None:
        """Gives an open file or folder to the tenant's uid."""
        if self.drop:
            os.fchown(descriptor, self.uid, self.gid)


def identify(sandbox_uid: int, *, effective_uid: int | None = None) -> Identity:
    """Returns the tenants' identity: the supervisor's own, or `sandbox_uid` when the supervisor is root."""
    uid = os.geteuid() if effective_uid is None else effective_uid
    if uid != 0:
        return Identity(uid, os.getegid(), drop=False)
    return Identity(sandbox_uid, sandbox_uid, drop=True)


def first_closed(path: Path, identity: Identity) -> Path | None:
    """Returns the first folder from `/` down to `path` that the identity cannot pass, or None.

    Folders that do not exist yet count as passable: whoever makes them decides their mode.
    """
    for folder in (*reversed(path.parents), path):
        try:
            facts = folder.stat()
        except FileNotFoundError:
            return None
        if facts.st_uid == identity.uid:
            needed = stat.S_IXUSR
        elif facts.st_gid == identity.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not facts.st_mode & needed:
            return folder
    return None
