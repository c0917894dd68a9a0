"""Who sent a request, as the interfaces hand it on: a principal, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tollbar.access.errors import Unauthenticated
from tollbar.access.principal import Principal
from tollbar.kit.errors import TollbarError

SCOPE_KEY: Final = "tollbar.caller"
"""Under this key the ASGI scope of a request on `/v1` and `/api` holds its `Caller`."""


@dataclass(frozen=True)
class Caller:
    """The outcome of authentication. A refusal is kept, not raised: each interface answers it in its own way."""

    principal: Principal | None
    refusal: TollbarError | None

    def required(self) -> Principal:
        """Returns the principal, or raises the refusal."""
        if self.principal is None:
            raise self.refusal or Unauthenticated(presented=False)
        return self.principal


ANONYMOUS: Final = Caller(None, None)


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Returns who sent the request of that ASGI scope; anonymous where nothing was authenticated."""
    found = scope.get(SCOPE_KEY)
    return found if isinstance(found, Caller) else ANONYMOUS
