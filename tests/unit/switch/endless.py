"""Something in the place of a switch's API that never comes to an end."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

PIECE = 65536
DONE = b"\x05!done\x00"

Say = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(*says: Say) -> Iterator[int]:
    """Open a port on loopback. After each received sentence it sends the next of `says`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(60)
                    for say in says:
                        _read_sentence(connection)
                        say(connection)
                    stop.wait(60)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        stop.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # ends an accept, which must not outlive the socket
        listener.close()
        thread.join(5)


def _read_sentence(connection: socket.socket) -> None:
    while not connection.recv(PIECE).endswith(b"\x00"):
        pass


def again(piece: bytes, pause: float = 0.0, times: int = 10**6) -> Say:
    """Say a piece again and again, until the other side is gone."""

    def say(connection: socket.socket) -> None:
        wait = threading.Event()
        for _ in range(times):
            connection.sendall(piece)
            if pause:
                wait.wait(pause)

    return say


def login(connection: socket.socket) -> None:
    """Accept any password."""
    connection.sendall(b"\x05!done\x06.tag=1\x00")


def word(tag: int = 2) -> bytes:
    """The tag of an answer: the library numbers its sentences."""
    text = f".tag={tag}".encode()
    return bytes([len(text)]) + text
