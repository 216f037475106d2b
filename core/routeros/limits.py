"""Limits of an answer of a switch, or of a machine in its place: its total time and its size in bytes. A limit of
single reads does not end a peer that sends one byte after the other.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from threading import Timer
from typing import Any

MOST_BYTES = 8 * 1024 * 1024
"""Maximum bytes of one answer: all counters of all ports are 0.2 MB, a portion of a file 32 KiB; as many of the
smallest rows take 0.3 GB of memory.
"""


class AnswerTooLongError(ConnectionError):
    """An answer is longer than MOST_BYTES."""


class Watch:
    """Timer that closes a connection after its time limit: every wait on it returns then.

    It holds its own descriptor, since TLS takes over the one that it gets. It uses a timer and not the timeout of the
    socket, which restarts with each byte.
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
        """Limit the time of the block to `seconds`; `late` is True when the limit ended it."""
        self.late = False
        timer = Timer(seconds, self._close_socket)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _close_socket(self) -> None:
        self.late = True
        if self._sock:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)


class Counted:
    """A socket that gives at most MOST_BYTES between two calls of `begin`. Raises AnswerTooLongError.

    The library reads single bytes and sends single words; the socket gets and gives as much as there is, and a whole
    sentence.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._left = MOST_BYTES
        self._read = memoryview(b"")
        self._words = bytearray()

    def begin(self) -> None:
        """Start the time limit for the next answer."""
        self._left = MOST_BYTES

    def recv(self, most: int) -> bytes:
        if not self._read:
            self._read = memoryview(self._sock.recv(65536))
        data, self._read = bytes(self._read[:most]), self._read[most:]
        self._left -= len(data)
        if self._left < 0:
            raise AnswerTooLongError(f"its answer is longer than {MOST_BYTES // 1024**2} MiB")
        return data

    def sendall(self, word: bytes) -> None:
        """Keep a word until the empty one that ends its sentence, then send them all."""
        self._words += word
        if word == b"\0":
            sentence = bytes(self._words)
            self._words.clear()
            self._sock.sendall(sentence)

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the socket."""
        return getattr(self._sock, name)
