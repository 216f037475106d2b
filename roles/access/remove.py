"""Take keys, names and sshd's settings off a node, and at last what sparkrack keeps there.

The login of the run itself, its key and its sudo, stays: the run needs it to the end, and without it the operator may
be locked out. `sparkrack remove --login` takes it off when all else is done.
"""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import remote_files
from core.ops.operation import Changeset, managed_operation
from core.ops.record import RECORD
from core.ops.removal import Traces, take_off, without_lines
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, acted, file_acted
from roles.access import ROLE, authorized_keys, etc_hosts, known_hosts, node_key
from roles.access.facts import TRIAL, AccessFacts
from roles.access.sshd_apply import harden


def _is_ours(line: bytes) -> bool:
    """Whether a line of /etc/hosts is of our block, or about loopback, where the node's own name has stood."""
    fields = line.decode("utf-8", "replace").partition("#")[0].split()
    return not fields or etc_hosts.loopback(fields[0])


def _without_block(before: bytes, now: bytes) -> bytes:
    """/etc/hosts as before, and at its end the lines that others have added since."""
    head, begin, rest = now.partition(etc_hosts.BEGIN.encode())
    _, _, tail = rest.partition(etc_hosts.END.encode())
    return without_lines(_is_ours)(before, head + tail if begin else now)


TRACES = Traces(
    ROLE.key,
    own=(known_hosts.HOSTS, known_hosts.CLIENT, etc_hosts.CLOUD),
    edited={etc_hosts.HOSTS: _without_block},
    # A node that bootstrap has given another name must still find itself: sudo asks for it.
    after=(
        f'n=$(cat /proc/sys/kernel/hostname); grep -qwF -- "$n" {etc_hosts.HOSTS} || '
        f'printf "127.0.1.1 %s\\n" "$n" >> {etc_hosts.HOSTS}'
    ),
).register()
LAST = Traces(
    "record",
    folders=("/etc/sparkrack", "/usr/local/lib/sparkrack", "/var/cache/sparkrack", remote_files.BACKUPS, RECORD),
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:
    """Bring back sshd's settings and the names, remove the keys of the nodes, and what is kept on the node."""
    open_rack = rack.model_copy(update={"access": rack.access.model_copy(update={"hardening": False})})
    harden(name="Bring sshd's settings back", rack=open_rack, node=node, seconds=TRIAL.seconds, _serial=True)
    remove_keys(name="Remove the keys of the nodes", rack=rack, node=node, _serial=True)
    take_off(name="Take names and host keys of the rack off", traces=TRACES, _serial=True)
    take_off(name="Remove what is kept of the node's former state", traces=LAST, _serial=True)


@managed_operation("access", AccessFacts)
def remove_keys(facts: AccessFacts) -> Changeset:
    """Remove the node's own pair, and the lines that let the nodes in; other lines stay byte for byte."""
    account, found = facts.account, facts.pair
    before = found.authorized or b""
    lines = before.splitlines(keepends=True)
    after = b"".join(line for line in lines if authorized_keys.node_of_line(facts.rack, line) is None)
    key = f"{account.folder}/{node_key.NAME}"
    pair = [path for path, thing in ((key, "private"), (f"{key}.pub", "public")) if thing in found.things]
    if after == before and not pair:
        return Changeset(in_sync_reason="there are no keys of the rack's nodes")
    events: tuple[Event, ...] = ()
    commands: list[StringCommand] = []
    if after != before:
        entry = node_key.entry(account)
        events += _revoked_logins(facts, before)
        check = f'chown {account.owner} "$new"'
        commands.append(remote_files.put(entry, after, mode=node_key.MODES["authorized"], check=check))
    if pair:
        events += file_acted(Action.REMOVE, *pair)
        commands.append(sudo_script(f"rm -f {quote(*pair)}"))
    return Changeset(events=events, commands=tuple(commands))


def _revoked_logins(facts: AccessFacts, before: bytes) -> tuple[Event, ...]:
    """Return that the nodes whose lines are in a file may no longer log in."""
    named = (authorized_keys.node_of_line(facts.rack, line) for line in before.splitlines())
    return acted(Action.REVOKE_LOGIN, *(name for name in dict.fromkeys(named) if name is not None))
