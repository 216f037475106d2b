"""The host keys of machines: which ones a machine offers, and which ones a known_hosts file has for its address.

What OpenSSH reads, other tools read too, so the file stays its own: plain or hashed names, comments, keys of others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from core.model.errors import printable_line, truncate
from core.model.fields import SSH_PORT
from core.util import regular_file
from core.util.atomic_file import rewrite_atomic

KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
"""What sshd may have, the best first. Ubuntu and DGX OS make the first, the second and the last."""
_LONGEST = 16 * 1024
"""No public key is longer, in base64."""
_FOUND = re.compile(r"# Host \S+ found: line (\d+) (?:CA|REVOKED)?")
"""What ssh-keygen -F prints before each line that it finds."""
_SECONDS = 20.0
"""How long ssh-keygen may search one file; 10 000 hashed lines take it 26 ms of CPU time."""


class HostKeyError(Exception):
    """A key that is none, a machine that offers none, or a known_hosts file that cannot be used; one line."""


class SilentError(HostKeyError):
    """No host answers."""


@dataclass(frozen=True)
class HostKey:
    """The public half of a host key. `kind`: as OpenSSH calls it. `blob`: in base64."""

    kind: str
    blob: str

    @classmethod
    def parse(cls, text: str) -> HostKey:
        """The key in `ssh-ed25519 AAAA... comment`. Raises HostKeyError."""
        words = text.split(None, 2)
        if len(words) < 2 or words[0] not in KINDS or len(words[1]) > _LONGEST:
            raise HostKeyError(f"{truncate(text)} is not a host key; it starts with one of {', '.join(KINDS)}")
        kind, blob = words[:2]
        try:
            inner = base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError):
            inner = b""
        # The first string in a key is its kind once more (RFC 4253, 6.6).
        if not inner.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
            raise HostKeyError(f"{truncate(text)} is not a host key: its content does not match its type")
        return cls(kind, blob)

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it: `SHA256:` and 43 characters."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def __str__(self) -> str:
        return f"{self.kind} {self.blob}"


def offered(address: str, port: int, seconds: float, kinds: Sequence[str] = KINDS) -> tuple[HostKey, ...]:
    """The host keys that the server at an address presents, the best first; none of them is trusted yet.

    `seconds`: how long it may take to answer. `kinds`: which ones are asked for; each costs a connection, and sshd
    from 9.8 on counts connections without a login. Raises SilentError when there is no answer, HostKeyError when the
    server is not sshd.
    """
    where = known_as(address, port)
    try:
        # ssh-keyscan does not report why it got nothing.
        socket.create_connection((address, port), timeout=max(seconds, 0.1)).close()
    except OSError as error:
        raise SilentError(f"{where} does not answer: {error.strerror or error}") from None
    types = ",".join(dict.fromkeys(kind.removeprefix("ssh-").partition("-")[0] for kind in kinds))
    ask = ["ssh-keyscan", "-T", str(max(1, round(seconds))), "-p", str(port), "-t", types, address]
    try:
        done = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=4 * seconds + 10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostKeyError(f"{where} cannot be asked for its host keys: {_fault_text(error)}") from None
    found: dict[HostKey, None] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        name, _, key = line.partition(" ")
        if name and not name.startswith("#"):
            found[HostKey.parse(key)] = None
    if not found:
        raise HostKeyError(f"{where} answers, and shows no host key; is it sshd, and does it accept connections now?")
    return tuple(sorted(found, key=lambda key: KINDS.index(key.kind)))


def known_as(address: str, port: int) -> str:
    """How a known_hosts file calls a machine."""
    return address if port == SSH_PORT else f"[{address}]:{port}"


def pinned(file: Path, address: str, port: int) -> tuple[HostKey, ...]:
    """The keys that a known_hosts file has for an address; none when there is no file. Raises HostKeyError when the
    file cannot be read, or has for that address something that is not a plain key."""
    found = _lines_about(file, _read_file(file), known_as(address, port))
    return tuple(dict.fromkeys(_parse_entry(file, number, line)[1] for number, line in found.items()))


def pin(file: Path, address: str, port: int, keys: Sequence[HostKey]) -> None:
    """Make `keys` the ones of an address, and the only ones; without any, the address is in the file no more.

    Every other line keeps every byte. The file is replaced as a whole or not at all, with its mode; a new one is 0644,
    and a symbolic link to it stays one. Raises HostKeyError when it cannot be written, or when a line has the address
    by a pattern: that line is about others too.
    """
    name = known_as(address, port)
    before = _read_file(file)
    lines = io.StringIO(before, newline="\n").readlines()
    found = _lines_about(file, before, name)
    for number, line in found.items():
        names, _ = _parse_entry(file, number, line)
        # A hashed name stands alone in its line.
        others = [] if names.startswith("|") else [one for one in names.split(",") if one.lower() != name]
        lines[number - 1] = lines[number - 1].replace(names, ",".join(others), 1) if others else "\n"
    # What OpenSSH still finds, now that the name itself is gone, it finds by a pattern.
    if still := _lines_about(file, "".join(lines), name):
        right = "write the addresses that it means, one by one"
        raise HostKeyError(f"{file}:{min(still)}: a pattern has {name} as well; {right}")
    emptied = {number - 1 for number in found if lines[number - 1] == "\n"}
    place = min(found) - 1 if found else len(lines)
    if not found and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    own = [f"{name} {key}\n" for key in dict.fromkeys(keys)]
    text = "".join(
        [*lines[:place], *own, *(line for at, line in enumerate(lines) if at >= place and at not in emptied)]
    )
    if text != before:
        with _usable_file(file):
            rewrite_atomic(file, text.encode("utf-8", "surrogateescape"))


def _read_file(file: Path) -> str:
    with _usable_file(file):
        if not file.exists():
            return ""
        return regular_file.read_bytes(file).decode("utf-8", "surrogateescape")


def _lines_about(file: Path, text: str, name: str) -> dict[int, str]:
    """The lines that OpenSSH reads for a machine, by number from 1 on: plain, hashed, by a pattern, with a marker.

    `file`: what errors name; `text`: its content, which is handed over so that both are of one moment. Raises
    HostKeyError.
    """
    if not text:
        return {}
    command = ["ssh-keygen", "-F", name, "-f", "/dev/stdin"]
    data = text.encode("utf-8", "surrogateescape")
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostKeyError(f"ssh-keygen cannot search {file}: {_fault_text(error)}") from None
    if done.returncode not in (0, 1):  # 1: nothing is found
        why = truncate(done.stderr.decode(errors="replace").strip() or f"it ended with {done.returncode}")
        raise HostKeyError(f"ssh-keygen cannot search {file}: {why}")
    # Not splitlines: a line may hold what Python takes for a line end, and OpenSSH does not.
    printed = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    return {int(match[1]): line for head, line in pairwise(printed) if (match := _FOUND.fullmatch(head))}


def _parse_entry(file: Path, number: int, line: str) -> tuple[str, HostKey]:
    """The names and the key of a line that ssh-keygen has found."""
    names, _, key = line.strip().replace("\t", " ").partition(" ")
    if names.startswith("@"):
        raise HostKeyError(f"{file}:{number}: {names} stands for this address; remove that line by hand")
    try:
        return names, HostKey.parse(key)
    except HostKeyError as fault:
        raise HostKeyError(f"{file}:{number}: {fault}") from None


@contextmanager
def _usable_file(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostKeyError(f"{printable_line(str(file))} cannot be read or written: {error.strerror}") from None


def _fault_text(error: Exception) -> str:
    return "it takes too long" if isinstance(error, subprocess.TimeoutExpired) else str(error)
