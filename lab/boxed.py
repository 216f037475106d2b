"""Nodes as their owner has them after the first-boot wizard: one user with a password, a name that the maker gave, and
nobody's key. Some are clones: with the image they came with, they got the host keys and the machine-id of another."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

from lab import private
from lab.errors import LabError
from lab.keys import fingerprint, make_key
from lab.layout import Layout
from lab.place import Place

WIZARD = "nvidia"
"""The user that the wizard made."""
CLONES = 2
"""How many nodes, by rank, came with one image that had been booted before."""
KINDS = ("ed25519", "ecdsa", "rsa")
"""Those of which sshd has a host key from Ubuntu's installer."""


def prepare(place: Place) -> None:
    """Make, once, what boxed nodes have in common: the password of the wizard's user, and the image of the clones."""
    private.make(place.password, secrets.token_urlsafe(12) + "\n")
    _host_keys(place.clones, "factory")
    private.make(place.clones / "machine-id", secrets.token_hex(16) + "\n")


def box(name: str, layout: Layout, place: Place) -> None:
    """Write what the first boot of a node takes up, the part in which it differs from an ordinary node of the lab.

    Host keys that are there stay; nothing of the operator's is among it, and of the password only its hash.
    Raises LabError.
    """
    seed = place.node(name) / "shared/seed"
    seed.mkdir(parents=True, exist_ok=True)
    if layout.rank[name] <= CLONES:
        for path in place.clones.iterdir():
            shutil.copy(path, seed)  # with its mode
    else:
        _host_keys(seed, name)
    (seed / "hostname").write_text(f"{hostname(layout, name)}\n")
    private.make(seed / "wizard", f"{WIZARD}:{_hashed(place.password.read_text().strip())}\n")


def hostname(layout: Layout, name: str) -> str:
    """The name that the maker gave: from the hardware address, the part in which nodes differ."""
    fields = layout.management_mac(name).split(":")
    return f"spark-{fields[3]}{fields[4]}"


def console(name: str, place: Place) -> str:
    """What its console showed at the first boot: lines `NAME SHA256:...`, one for each host key."""
    seed = place.node(name) / "shared/seed"
    keys = (seed / f"ssh_host_{kind}_key.pub" for kind in KINDS)
    return "".join(f"{name} {fingerprint(key.read_text())}\n" for key in keys)


def _host_keys(folder: Path, host: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for kind in KINDS:
        make_key(folder / f"ssh_host_{kind}_key", f"root@{host}", kind)


def _hashed(password: str) -> str:
    command = ["openssl", "passwd", "-6", "-stdin"]
    done = subprocess.run(command, input=password + "\n", capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"openssl passwd: {done.stderr.strip()}")
    return done.stdout.strip()
