"""Limits on what a switch, or something in its place, may say: how long one answer takes as a whole, and how many
bytes it has. Limits of single reads end nothing that sends one byte after the other."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from threading import Timer
from typing import Any

MOST_BYTES = 8 * 1024 * 1024
"""Of one answer: all counters of all ports are 0.2 MB, a portion of a file 32 KiB; as many of the smallest rows take
0.3 GB of memory."""


class TooMuchError(ConnectionError):
    """An answer is longer than MOST_BYTES."""


class Watch:
    """Ends a connection that is over its time: every wait on it returns then.

    It holds a descriptor of its own, since TLS takes the one that it is given. A timer and not the limit of the socket,
    which begins anew with each byte.
    """

    def __init__(self) -> None:
        self._sock: socket.socket | None = None
        self.late = False

    def hold(self, sock: socket.socket) -> None:
        """The connection that is watched from now on."""
        self.close()
        self._sock = sock.dup()

    def close(self) -> None:
        """Let go of it: the connection ends when its other holder has closed it, too."""
        sock, self._sock = self._sock, None
        if sock:
            sock.close()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What happens in the block ends within `seconds`; `late` is True when it was ended."""
        self.late = False
        timer = Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self.late = True
        if self._sock:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)


class Counted:
    """A socket that gives at most MOST_BYTES between two calls of `begin`. Raises TooMuchError."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._left = MOST_BYTES

    def begin(self) -> None:
        """Another answer is awaited."""
        self._left = MOST_BYTES

    def recv(self, most: int) -> bytes:
        data = self._sock.recv(min(most, 65536))
        self._left -= len(data)
        if self._left < 0:
            raise TooMuchError(f"its answer is longer than {MOST_BYTES // 1024**2} MiB")
        return data

    def __getattr__(self, name: str) -> Any:
        """All else is the socket's."""
        return getattr(self._sock, name)
