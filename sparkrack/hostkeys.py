"""The host keys of machines: which ones a machine offers, and which ones a known_hosts file has for its address.

What OpenSSH reads, other tools read too, so the file stays its own: plain or hashed names, comments, keys of others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sparkrack.fleet import regular
from sparkrack.fleet.errors import one_line, shown

KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
"""What sshd may have, the best first. Ubuntu and DGX OS make the first, the second and the last."""
_DEFAULT_PORT = 22
_LONGEST = 16 * 1024
"""No public key is longer, in base64."""
_HASHED = re.compile(r"\|1\|([A-Za-z0-9+/=]+)\|([A-Za-z0-9+/=]+)")


class HostKeyError(Exception):
    """A key that is none, a machine that offers none, or a known_hosts file that cannot be used; one line."""


class SilentError(HostKeyError):
    """Nobody answers."""


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
            raise HostKeyError(f"{shown(text)} is no host key; it starts with one of {', '.join(KINDS)}")
        kind, blob = words[:2]
        try:
            inner = base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError):
            inner = b""
        # The first string in a key is its kind once more (RFC 4253, 6.6).
        if not inner.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
            raise HostKeyError(f"{shown(text)} is no host key: it does not hold what it says")
        return cls(kind, blob)

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it: `SHA256:` and 43 characters."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def __str__(self) -> str:
        return f"{self.kind} {self.blob}"


def offered(address: str, port: int, seconds: float, kinds: Sequence[str] = KINDS) -> tuple[HostKey, ...]:
    """The keys that whoever answers at an address says are its own, the best first; none of them is to be trusted.

    `seconds`: how long it may take to answer. `kinds`: which ones are asked for; each costs a connection, and sshd
    from 9.8 on counts connections without a login. Raises SilentError when nobody answers, HostKeyError when whoever
    does is no sshd.
    """
    where = known_as(address, port)
    try:
        # ssh-keyscan says nothing of why it got nothing.
        socket.create_connection((address, port), timeout=max(seconds, 0.1)).close()
    except OSError as error:
        raise SilentError(f"{where} does not answer: {error.strerror or error}") from None
    types = ",".join(dict.fromkeys(kind.removeprefix("ssh-").partition("-")[0] for kind in kinds))
    ask = ["ssh-keyscan", "-T", str(max(1, round(seconds))), "-p", str(port), "-t", types, address]
    try:
        done = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=4 * seconds + 10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostKeyError(f"{where} cannot be asked for its host keys: {_why(error)}") from None
    found: dict[HostKey, None] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        name, _, key = line.partition(" ")
        if name and not name.startswith("#"):
            found[HostKey.parse(key)] = None
    if not found:
        raise HostKeyError(f"{where} answers, and shows no host key; is it sshd, and does it let anybody in now?")
    return tuple(sorted(found, key=lambda key: KINDS.index(key.kind)))


def known_as(address: str, port: int) -> str:
    """How a known_hosts file calls a machine."""
    return address if port == _DEFAULT_PORT else f"[{address}]:{port}"


def pinned(file: Path, address: str, port: int) -> tuple[HostKey, ...]:
    """The keys that a known_hosts file has for an address; none when there is no file. Raises HostKeyError when the
    file cannot be read, or says of that address something that is no plain key."""
    name = known_as(address, port)
    found: dict[HostKey, None] = {}
    for number, line in enumerate(_read(file).splitlines(), start=1):
        names, key = _parts(line)
        if _named(names, name):
            found[_key(file, number, key)] = None
    return tuple(found)


def pin(file: Path, address: str, port: int, keys: Sequence[HostKey]) -> None:
    """Make `keys` the ones of an address, and the only ones; without any, the address is in the file no more.

    Every other line keeps every byte. The file is replaced as a whole or not at all, with its mode; a new one is 0644,
    and a symbolic link to it stays one. Raises HostKeyError when it cannot be written, or when a line has the address
    by a pattern: that line is about others too.
    """
    name = known_as(address, port)
    before = _read(file)
    after: list[str] = []
    place: int | None = None
    for number, line in enumerate(before.splitlines(keepends=True), start=1):
        names, key = _parts(line)
        if not _named(names, name):
            after.append(line)
            continue
        _key(file, number, key)
        place = len(after) if place is None else place
        others = [one for one in names.split(",") if not _is(one, name)]
        if any(_matches(one, name) for one in others):
            right = "write the addresses that it means, one by one"
            raise HostKeyError(f"{file}:{number}: a pattern has {name} as well; {right}")
        if others:
            after.append(line.replace(names, ",".join(others), 1))
    if place is None:
        place = len(after)
        if after and not after[-1].endswith("\n"):
            after[-1] += "\n"
    after[place:place] = [f"{name} {key}\n" for key in dict.fromkeys(keys)]
    text = "".join(after)
    if text != before:
        with _usable(file):
            _replace(file, text.encode("utf-8", "surrogateescape"))


def _read(file: Path) -> str:
    with _usable(file):
        if not file.exists():
            return ""
        return regular.read_bytes(file).decode("utf-8", "surrogateescape")


def _parts(line: str) -> tuple[str, str]:
    """The names and the key of a line; a marker (@revoked, @cert-authority) stays before the key."""
    words = line.strip().split(None, 1)
    if len(words) < 2 or words[0].startswith("#"):
        return "", ""
    if words[0].startswith("@"):
        names, _, key = words[1].partition(" ")
        return names, f"{words[0]} {key}"
    return words[0], words[1]


def _key(file: Path, number: int, key: str) -> HostKey:
    if key.startswith("@"):
        raise HostKeyError(f"{file}:{number}: {key.split()[0]} is said of this address; take that line out by hand")
    try:
        return HostKey.parse(key)
    except HostKeyError as fault:
        raise HostKeyError(f"{file}:{number}: {fault}") from None


def _named(names: str, name: str) -> bool:
    """Whether a list of names is about a machine, as OpenSSH reads it: a pattern with ! before it takes it out."""
    listed = [one for one in names.split(",") if one]
    if any(_matches(one[1:], name) for one in listed if one.startswith("!")):
        return False
    return any(_matches(one, name) for one in listed)


def _matches(pattern: str, name: str) -> bool:
    # fnmatch would read the brackets around an address as a set of characters.
    return _is(pattern, name) or fnmatchcase(name, pattern.replace("[", "[[]"))


def _is(one: str, name: str) -> bool:
    """Whether one entry is that name and nothing else, plain or hashed."""
    if hashed := _HASHED.fullmatch(one):
        with suppress(binascii.Error, ValueError):
            salt, digest = (base64.b64decode(part, validate=True) for part in hashed.groups())
            return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
    return one.lower() == name


def _replace(file: Path, data: bytes) -> None:
    target = file.resolve()
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), mode)
            if target.exists():
                was = target.stat()
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(stream.fileno(), was.st_uid, was.st_gid)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _usable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostKeyError(f"{one_line(str(file))} cannot be read or written: {error.strerror}") from None


def _why(error: Exception) -> str:
    return "it takes too long" if isinstance(error, subprocess.TimeoutExpired) else str(error)
