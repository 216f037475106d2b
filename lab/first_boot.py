"""Nodes in the state after the first-boot wizard: one user with a password, a name from the manufacturer, and no key.
Some are clones: their image has the host keys and the machine-id of another node.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

from core.ssh.host_keys import HostKey
from lab import private_file
from lab.errors import LabError
from lab.keys import make_key
from lab.layout import Layout
from lab.paths import LabPaths

WIZARD = "nvidia"
"""The user that the wizard creates."""
CLONES = 2
"""Number of nodes, by rank, with one image that had been booted before."""
KINDS = ("ed25519", "ecdsa", "rsa")
"""Types of host keys that Ubuntu's installer generates for sshd."""


def prepare(paths: LabPaths) -> None:
    """Make, once, the password of the wizard's user and the image of the clones, for nodes in factory state."""
    private_file.make(paths.password, secrets.token_urlsafe(12) + "\n")
    _host_keys(paths.clones, "factory")
    private_file.make(paths.clones / "machine-id", secrets.token_hex(16) + "\n")


def box(name: str, layout: Layout, paths: LabPaths) -> None:
    """Write what the first boot of a node takes up, the part in which it differs from an ordinary node of the lab.

    Host keys that are there stay; nothing of the operator's is among it, and of the password only its hash.
    Raises LabError.
    """
    seed = paths.node(name) / "shared/seed"
    seed.mkdir(parents=True, exist_ok=True)
    if layout.rank[name] <= CLONES:
        for path in paths.clones.iterdir():
            shutil.copy(path, seed)  # with its mode
    else:
        _host_keys(seed, name)
    (seed / "hostname").write_text(f"{hostname(layout, name)}\n")
    private_file.make(seed / "wizard", f"{WIZARD}:{_hash_password(paths.password.read_text().strip())}\n")


def hostname(layout: Layout, name: str) -> str:
    """The name that the maker gave: from the hardware address, the part in which nodes differ."""
    fields = layout.management_mac(name).split(":")
    return f"spark-{fields[3]}{fields[4]}"


def console(name: str, paths: LabPaths) -> str:
    """Return the output of its console at the first boot: lines `NAME SHA256:...`, one for each host key."""
    seed = paths.node(name) / "shared/seed"
    keys = (seed / f"ssh_host_{kind}_key.pub" for kind in KINDS)
    return "".join(f"{name} {HostKey.parse(key.read_text()).fingerprint}\n" for key in keys)


def _host_keys(folder: Path, host: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for kind in KINDS:
        make_key(folder / f"ssh_host_{kind}_key", f"root@{host}", kind)


def _hash_password(password: str) -> str:
    command = ["openssl", "passwd", "-6", "-stdin"]
    done = subprocess.run(command, input=password + "\n", capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"openssl passwd: {done.stderr.strip()}")
    return done.stdout.strip()
