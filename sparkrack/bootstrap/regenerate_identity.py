"""Unique identity of a node: scripts that generate new host keys and a new machine-id."""

from __future__ import annotations

from collections.abc import Mapping

from core.ssh.host_keys import HostKey
from core.util import resources
from sparkrack.bootstrap.node_facts import BEGIN, STAGED

_TYPES = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa -b 3072"}
_BITS = {"ecdsa-sha2-nistp256": 256, "ecdsa-sha2-nistp384": 384, "ecdsa-sha2-nistp521": 521}


def stage(stale: Mapping[str, HostKey], node: str) -> str:
    """Generate a new key for each of these files, beside them, and print path and public key of each. One that an
    earlier run generated is reused: this machine may have pinned it already. sshd does not use any of them yet.
    """
    lines = [BEGIN, f"mkdir -p -m 700 {STAGED}; chown 0:0 {STAGED}; chmod 700 {STAGED}"]
    for path, key in stale.items():
        new = f"{STAGED}/{path.rpartition('/')[2]}"
        kind = _TYPES.get(key.kind) or f"ecdsa -b {_BITS[key.kind]}"
        whole = (
            f"[ -f {new} ] && [ -f {new}.pub ] && "
            f"[ \"$(ssh-keygen -y -P '' -f {new} | cut -d' ' -f1,2)\" = \"$(cut -d' ' -f1,2 {new}.pub)\" ]"
        )
        lines.append(
            f"{whole} || {{ rm -f {new} {new}.pub; ssh-keygen -q -t {kind} -N '' -C root@{node} -f {new}; }}\n"
            f"sync {new} {new}.pub; printf '%s ' {path}; cat {new}.pub"
        )
    return "\n".join(lines)


def switch(stale: Mapping[str, HostKey]) -> str:
    """Replace the old keys by the new ones, each in one step. At no time is there a public half that does not belong to
    its private one. It continues when the connection is lost.
    """
    lines = [BEGIN, "trap '' HUP INT TERM PIPE"]
    for path in stale:
        new = f"{STAGED}/{path.rpartition('/')[2]}"
        lines.append(f"[ ! -f {new} ] || {{ rm -f {path}.pub; mv -fT {new} {path}; }}")
        lines.append(f"[ ! -f {new}.pub ] || mv -fT {new}.pub {path}.pub")
    folder = next(iter(stale)).rpartition("/")[0]
    return "\n".join([*lines, f"rm -rf {STAGED}; sync {folder}"])


# claim: bootstrap.host-key-reload
def reload() -> str:
    """Let sshd read its keys: open sessions stay. Nothing is reloaded that could not start again."""
    return f"{BEGIN}trap '' HUP INT TERM PIPE; sshd -t >&2; systemctl try-reload-or-restart ssh.service >&2"


def machine_id() -> str:
    """Generate a new machine-id, in one step, and before it a reboot request in the form that a package uses: the
    running system has the old one until then. Prints it.
    """
    return "\n".join([BEGIN, resources.file_text("sparkrack.bootstrap", "files/new-machine-id.sh")])
