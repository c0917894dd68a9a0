"""The server that `tollbar up` runs on this machine: its URL and its owner's key, in its data folder."""

from __future__ import annotations

import json
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollbar.cli.problems import BadConfiguration, NoKey

SERVER_FILE: Final = "server.json"
KEY_FILE: Final = "api_key"
_MAX_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class LocalServer:
    """Where the local server answers; its key is read only for it."""

    url: str
    data_dir: Path

    def read_key(self) -> str:
        """Returns the owner's key; raises `NoKey` when the file is missing or others may read it."""
        text = _read_private(self.data_dir / KEY_FILE)
        if text is None:
            raise NoKey(f"the local server's key file {self.data_dir / KEY_FILE} is missing", fix="tollbar up")
        return text.strip()


def read_local_server(data_dir: Path) -> LocalServer | None:
    """Returns the local server of a data folder, None when none was started there."""
    path = data_dir / SERVER_FILE
    text = _read_private(path)
    if text is None:
        return None
    try:
        url = json.loads(text)["url"]
    except (ValueError, KeyError, TypeError):
        url = None
    if not isinstance(url, str):
        raise BadConfiguration(f"{path} holds no url", fix="write it anew: tollbar up")
    return LocalServer(url, data_dir)


def _read_private(path: Path) -> str | None:
    """Returns a file's text, None when it is missing; raises `NoKey` when anybody but its owner may use it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise NoKey(
                    f"{path} can be used by others (mode {mode:04o}) and is not trusted",
                    fix=f"chmod 600 {shlex.quote(str(path))}",
                )
            return file.read(_MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoKey(f"{path} cannot be read", why=[str(error.strerror)]) from None
    except UnicodeDecodeError:
        raise BadConfiguration(f"{path} is not UTF-8") from None
