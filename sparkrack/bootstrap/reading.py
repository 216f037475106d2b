"""What a node is, as one script reads it and prints it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkrack.bootstrap.errors import ContactError
from sparkrack.fleet.errors import shown
from sparkrack.hostkeys import HostKey, HostKeyError

SUDOERS = "/etc/sudoers.d/zz-sparkrack"
"""Read last, so that it counts; sudo leaves out names with a dot in them."""
CLOUD_FOLDER = "/etc/cloud/cloud.cfg.d"
CLOUD = f"{CLOUD_FOLDER}/zz-sparkrack-hostname.cfg"
HOSTS = "/etc/hosts"
GROUPS = ("sudo", "docker")
STAGED = "/etc/ssh/.sparkrack-new"
"""Where new host keys wait until the operator's machine knows them."""
TOOLS = ("useradd", "usermod", "runuser", "visudo", "sshd", "ssh-keygen", "hostnamectl", "systemctl", "base64", "sync")
BEGIN = "set -eu; umask 022; export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
"""How every script of ours begins."""

_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Thing:
    """A file or folder, a symbolic link not followed. `kind`: as `stat` words it. `mode`: its permission bits."""

    kind: str
    owner: int
    mode: int

    @property
    def link(self) -> bool:
        return self.kind == "symbolic link"


@dataclass(frozen=True)
class Account:
    """The login user as the node has it."""

    number: int
    home: str
    shell: str
    groups: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """A node. `things`: home, .ssh, authorized_keys and the drop-in of sudo, as far as they are there. `keys`: its
    host keys by the file of the private half. None for a file that is not there."""

    account: Account | None
    groups: frozenset[str]
    things: Mapping[str, Thing]
    authorized: bytes
    sudoers: bytes | None
    name: str
    static_name: str
    hosts: bytes
    cloud: bool
    cloud_text: bytes | None
    keys: Mapping[str, HostKey]
    machine_id: str


def look(user: str) -> str:
    """The script. `user`: a name of rack.yaml, safe as a word."""
    return f"""{BEGIN}
say() {{ printf '%s ' "$1"; base64 -w0; echo; }}
thing() {{ [ ! -e "$2" ] && [ ! -L "$2" ] || stat -c '%F|%u|%a' "$2" | say "thing-$1"; }}
text() {{ [ ! -f "$2" ] || head -c 1000000 "$2" | say "$1"; }}
for tool in {" ".join(TOOLS)}; do command -v "$tool" >/dev/null || printf '%s ' "$tool"; done | say missing
for group in {" ".join(GROUPS)}; do ! getent group "$group" >/dev/null || printf '%s ' "$group"; done | say groups
found=0; line=$(getent passwd {user}) || found=$?
[ "$found" = 0 ] || [ "$found" = 2 ]
if [ "$found" = 0 ]; then
    printf '%s' "$line" | say account
    id -nG {user} | say member
    home=$(printf '%s' "$line" | cut -d: -f6)
    thing home "$home"; thing folder "$home/.ssh"; thing authorized "$home/.ssh/authorized_keys"
    [ -L "$home/.ssh" ] || [ -L "$home/.ssh/authorized_keys" ] || text authorized "$home/.ssh/authorized_keys"
fi
thing sudoers {SUDOERS}; text sudoers {SUDOERS}
cat /proc/sys/kernel/hostname | say name
text static /etc/hostname; text hosts {HOSTS}; text machine-id /etc/machine-id; text cloud {CLOUD}
[ ! -d {CLOUD_FOLDER} ] || say clouds </dev/null
settings=$(sshd -T)
printf '%s\\n' "$settings" | sed -n 's/^hostkey //p' | while read -r path; do
    [ ! -e "$path" ] || printf '%s %s\\n' "$path" "$(ssh-keygen -y -P '' -f "$path")"
done | say keys
printf 'end %s\\n' "$(printf whole | base64)"
"""


def seen(output: bytes) -> Seen:
    """The node by what the script printed. Raises ContactError for whatever is not understood."""
    said: dict[str, bytes] = {}
    for line in output.decode("ascii", "replace").splitlines():
        name, _, data = line.partition(" ")
        try:
            said[name] = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ContactError(f"what it says of itself cannot be read: {shown(line)}") from None
    if said.get("end") != b"whole":
        raise ContactError("what it says of itself is not whole")
    if missing := _words(said, "missing"):
        raise ContactError(f"lacks {', '.join(sorted(missing))}; is it DGX OS or Ubuntu 24.04?")
    name, static = (said.get(key, b"").decode(errors="replace").strip() for key in ("name", "static"))
    number = said.get("machine-id", b"").decode(errors="replace").strip().removeprefix("uninitialized")
    if not _HOST_NAME.fullmatch(name):
        raise ContactError(f"its host name cannot be told from {shown(name)}")
    if number and not _MACHINE_ID.fullmatch(number):
        raise ContactError(f"its machine-id cannot be told from {shown(number)}")
    return Seen(
        account=_account(said),
        groups=_words(said, "groups"),
        things={key.removeprefix("thing-"): _thing(value) for key, value in said.items() if key.startswith("thing-")},
        authorized=said.get("authorized", b""),
        sudoers=said.get("sudoers"),
        name=name,
        static_name=static,
        hosts=said.get("hosts", b""),
        cloud="clouds" in said,
        cloud_text=said.get("cloud"),
        keys=host_keys(said.get("keys", b"")),
        machine_id=number,
    )


def host_keys(output: bytes) -> dict[str, HostKey]:
    """Host keys by their file, from lines of path, kind and key. Raises ContactError."""
    found = {}
    for line in output.decode(errors="replace").splitlines():
        path, _, key = line.partition(" ")
        if not re.fullmatch(r"/[A-Za-z0-9._/-]+", path):
            raise ContactError(f"a host key has a strange path: {shown(path)}")
        try:
            found[path] = HostKey.parse(key)
        except HostKeyError as fault:
            raise ContactError(f"{path}: {fault}") from None
    if not found:
        raise ContactError("it shows no host key of its own")
    return found


def _words(said: Mapping[str, bytes], name: str) -> frozenset[str]:
    if name not in said:
        raise ContactError(f"it does not say its {name}")
    return frozenset(said[name].decode(errors="replace").split())


def _account(said: Mapping[str, bytes]) -> Account | None:
    if "account" not in said:
        return None
    fields = said["account"].decode(errors="replace").split(":")
    if len(fields) != 7 or not fields[2].isdigit() or not fields[5].startswith("/"):
        raise ContactError(f"its user cannot be told from {shown(said['account'].decode(errors='replace'))}")
    return Account(int(fields[2]), fields[5], fields[6], _words(said, "member"))


def _thing(value: bytes) -> Thing:
    kind, owner, mode = [*value.decode(errors="replace").strip().split("|"), "", ""][:3]
    if not owner.isdigit() or not re.fullmatch(r"[0-7]{1,4}", mode):
        raise ContactError(f"a file cannot be told from {shown(value.decode(errors='replace'))}")
    return Thing(kind, int(owner), int(mode, 8))
