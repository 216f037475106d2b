"""Patience with a node that accepts no login at the moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sparkrack.node_login.errors import NodeUnreachableError

_PAUSE = 0.5
_Result = TypeVar("_Result")


def retry_while_unreachable(attempt: Callable[[], _Result], seconds: float) -> _Result:
    """Retry while the node accepts no login, for so many seconds: sshd from 9.8 on blocks an address after a few failed
    logins, for some seconds. Nothing of the attempt was done then. Raises NodeUnreachableError at the end.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except NodeUnreachableError:
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE)
