"""A RouterOS API client that sends raw bytes, for sentences that real clients never send.

Its length encoding is a separate implementation on purpose: sharing the emulator's would hide common errors.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

Sentence = list[str]


def length(size: int) -> bytes:
    """The code of a word's length, straight from the table in MikroTik's manual."""
    for limit, mark, count in ((0x80, 0, 1), (0x4000, 0x80, 2), (0x200000, 0xC0, 3), (0x10000000, 0xE0, 4)):
        if size < limit:
            code = bytearray(size.to_bytes(count, "big"))
            code[0] |= mark
            return bytes(code)
    return b"\xf0" + size.to_bytes(4, "big")


class RawClient:
    """One connection. Sentences go out and come in as lists of words."""

    def __init__(self, port: int, *, secure: bool = False) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self._file = self.socket.makefile("rb")

    def send(self, *words: str | bytes) -> None:
        """Send one sentence."""
        self.send_raw(encode(words))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def read(self) -> Sentence:
        """Read one sentence; EOFError when the switch has closed the connection."""
        words: Sentence = []
        while word := self._read_word():
            words.append(word.decode())
        return words

    def ask(self, *words: str | bytes) -> list[Sentence]:
        """Send a sentence without tag and read up to its ``!done``."""
        self.send(*words)
        answers = [self.read()]
        while answers[-1][0] != "!done":
            answers.append(self.read())
        return answers

    def login(self, name: str, password: str) -> None:
        """Log in; an AssertionError when that is refused."""
        assert self.ask("/login", f"=name={name}", f"=password={password}") == [["!done"]]

    def closed(self) -> bool:
        """Say whether the switch has closed the connection with nothing left to read."""
        return self._file.read(1) == b""

    def close(self) -> None:
        """Close at once."""
        self._file.close()
        self.socket.close()

    def _read_word(self) -> bytes:
        first = self._read_exactly(1)[0]
        for mark, more, mask in (
            (0x80, 0, 0x7F),
            (0xC0, 1, 0x3F),
            (0xE0, 2, 0x1F),
            (0xF0, 3, 0x0F),
            (0xF8, 4, 0),
        ):
            if first < mark:
                size = int.from_bytes(bytes([first & mask]) + self._read_exactly(more), "big")
                return self._read_exactly(size)
        raise AssertionError(f"control byte {first:#x} from the switch")

    def _read_exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise EOFError("the switch closed the connection")
        return data


def encode(words: Iterable[str | bytes]) -> bytes:
    """The bytes of a sentence."""
    raw = [word.encode() if isinstance(word, str) else word for word in words]
    return b"".join(length(len(word)) + word for word in raw) + b"\x00"


def attributes(sentence: Sentence) -> dict[str, str]:
    """The ``=key=value`` words of a sentence."""
    pairs = (word[1:].partition("=") for word in sentence if word.startswith("="))
    return {key: value for key, _, value in pairs}


def trap(answers: list[Sentence]) -> str:
    """The message of the one trap in an answer."""
    (found,) = [attributes(sentence)["message"] for sentence in answers if sentence[0] == "!trap"]
    return found
