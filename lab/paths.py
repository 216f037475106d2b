"""Folders of a lab: one folder per lab, one cache for all labs of a user."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TUN = Path("/dev/net/tun")


def cache() -> Path:
    """The folder for what is built once and serves every lab (`SPARKRACK_CACHE`, or the user's cache folder)."""
    base = os.environ.get("SPARKRACK_CACHE")
    if base:
        return Path(base).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or caller_home() / ".cache") / "sparkrack"


def caller_home() -> Path:
    """The home of who called, also when the call went through sudo."""
    import pwd

    return Path(pwd.getpwuid(caller()[0]).pw_dir)


def caller() -> tuple[int, int]:
    """User and group id of who called, also when the call went through sudo."""
    return int(os.environ.get("SUDO_UID", os.getuid())), int(os.environ.get("SUDO_GID", os.getgid()))


def runner() -> tuple[int, int]:
    """User and group id that nodes run as: who called, or root where /dev/net/tun is not open to users.

    Distributions open it; some containers do not.
    """
    return caller() if TUN.stat().st_mode & 0o006 == 0o006 else (0, 0)


def make_for_caller(folder: Path) -> Path:
    """Make a folder and the missing ones above it, each of which belongs to who called from the beginning."""
    if not folder.exists():
        make_for_caller(folder.parent)
        folder.mkdir(exist_ok=True)
        os.lchown(folder, *caller())
    return folder


def give_to_caller(folder: Path) -> None:
    """Hand a folder and all in it to who called: nothing of root's is left among a user's files."""
    uid, gid = caller()
    for path in [folder, *folder.rglob("*")]:
        os.lchown(path, uid, gid)


@dataclass(frozen=True)
class LabPaths:
    """One lab: everything it writes lies under `folder`."""

    folder: Path

    @classmethod
    def here(cls) -> LabPaths:
        """The lab of the working folder, or the one `SPARKRACK_LAB` names."""
        return cls(Path(os.environ.get("SPARKRACK_LAB") or ".lab").absolute())

    @cached_property
    def namespace(self) -> str:
        """The network namespace of this lab. Two labs in two folders never meet."""
        return "sparkrack-" + hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]

    @property
    def rack(self) -> Path:
        """The rack.yaml that describes what the lab built."""
        return self.folder / "rack.yaml"

    @property
    def plan(self) -> Path:
        """Parameters of `up`, so that every later command uses the same rack."""
        return self.folder / "asked.yaml"

    @property
    def key(self) -> Path:
        """The operator's private key."""
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The host keys of the nodes."""
        return self.folder / "known_hosts"

    @property
    def packages(self) -> Path:
        """The package repository."""
        return self.folder / "packages"

    @property
    def images(self) -> Path:
        """The image registry: its configuration, and what was pushed."""
        return self.folder / "images"

    @property
    def password(self) -> Path:
        """The password of the wizard's user on nodes in factory state, the same on all."""
        return self.folder / "password"

    @property
    def host_keys(self) -> Path:
        """The fingerprints of the host keys of nodes in factory state, as read off their consoles."""
        return self.folder / "host-keys"

    @property
    def clones(self) -> Path:
        """Common parts of nodes in factory state with the same image: host keys and machine-id."""
        return self.folder / "clones"

    def node(self, name: str) -> Path:
        """The folder of one node: disk, console, and `shared`, which the node sees as /lab."""
        return self.folder / "nodes" / name

    def switch(self, name: str) -> Path:
        """The folder of one switch: configuration, state, log, certificate."""
        return self.folder / "switches" / name

    def give_to_caller(self) -> None:
        """Hand all files of the lab to who called."""
        give_to_caller(self.folder)
