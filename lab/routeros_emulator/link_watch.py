"""Events of the kernel about links of this network namespace: one tells that a tap got or lost its carrier, as when the
kernel of a node begins or ends.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

_GROUP_LINK = 1
"""RTMGRP_LINK of linux/rtnetlink.h: the kernel sends each change of a link."""


class LinkWatch:
    """A netlink socket for `asyncio`'s add_reader. What changed is not read from its messages: they may be lost."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._socket.bind((0, _GROUP_LINK))

    def fileno(self) -> int:
        """The file descriptor, which is readable when a link has changed."""
        return self._socket.fileno()

    def heard(self, changed: Callable[[], None]) -> None:
        """Take all messages that are there, then call `changed` once."""
        while True:
            try:
                self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # messages were lost, and further ones follow
                    raise
        changed()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
