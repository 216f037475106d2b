"""What two nodes must not have in common: scripts that give a node host keys and a machine-id of its own."""

from __future__ import annotations

from collections.abc import Mapping

from sparkrack.bootstrap.reading import BEGIN, STAGED
from sparkrack.hostkeys import HostKey

_TYPES = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa -b 3072"}
_BITS = {"ecdsa-sha2-nistp256": 256, "ecdsa-sha2-nistp384": 384, "ecdsa-sha2-nistp521": 521}


def stage(stale: Mapping[str, HostKey], node: str) -> str:
    """Make a new key for each of these files, beside them, and print path and public key of each. One that an earlier
    run has made is taken: this machine may know it already. sshd does not know any of them yet."""
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
    """Put the new keys in the place of the old ones, each in one step. A public half that does not belong to the
    private one beside it is never there. It goes on when whoever asked for it is gone."""
    lines = [BEGIN, "trap '' HUP INT TERM PIPE"]
    for path in stale:
        new = f"{STAGED}/{path.rpartition('/')[2]}"
        lines.append(f"[ ! -f {new} ] || {{ rm -f {path}.pub; mv -fT {new} {path}; }}")
        lines.append(f"[ ! -f {new}.pub ] || mv -fT {new}.pub {path}.pub")
    folder = next(iter(stale)).rpartition("/")[0]
    return "\n".join([*lines, f"rm -rf {STAGED}; sync {folder}"])


def reload() -> str:
    """Let sshd read its keys: who is logged in stays so. Nothing is reloaded that could not start again."""
    return f"{BEGIN}trap '' HUP INT TERM PIPE; sshd -t >&2; systemctl try-reload-or-restart ssh.service >&2"


def machine_id() -> str:
    """A new machine-id, in one step, and the wish for a reboot before it, as a package would leave it: what runs has
    the old one until then. Prints it."""
    return f"""{BEGIN}
new=$(mktemp /etc/.machine-id.XXXXXX); trap 'rm -f "$new"' EXIT
tr -d - < /proc/sys/kernel/random/uuid > "$new"
chown 0:0 "$new"; chmod 444 "$new"; sync "$new"
echo '*** System restart required ***' > /run/reboot-required
grep -qx machine-id /run/reboot-required.pkgs 2>/dev/null || echo machine-id >> /run/reboot-required.pkgs
if [ -f /var/lib/dbus/machine-id ] && [ ! -L /var/lib/dbus/machine-id ]; then
    ln -sfT /etc/machine-id /var/lib/dbus/machine-id
fi
mv -fT "$new" /etc/machine-id
cat /etc/machine-id
"""
