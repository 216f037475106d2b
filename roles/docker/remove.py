"""Take the rack's settings off a node's docker. An engine that a run installed stays: it has the images."""

from __future__ import annotations

import copy
import json
from typing import Any

from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.ops import host_facts
from core.ops.operation import Changeset, operation_on_host
from core.ops.record import RECORD
from core.ops.removal import Traces, take_off
from core.ops.shell import quote, sudo_script
from core.util.event import Action, acted
from roles.docker import ROLE, desired, json_edit

_OURS: tuple[desired.Path, ...] = (
    desired.SLICE_KEY,
    desired.OPTIONS,
    ("log-driver",),
    ("log-opts", "max-size"),
    ("log-opts", "max-file"),
    desired.LIVE,
    ("default-ulimits", "memlock"),
    desired.NVIDIA,
)


def _without_settings(before: bytes, now: bytes) -> bytes:
    """A daemon.json with our settings as they were; byte for byte as before where nothing else has changed since."""
    old, new = ((json_edit.parse(text.decode()) if text else {}) for text in (before, now))
    result = copy.deepcopy(new)
    for path in _OURS:
        _set_value(result, path, desired.at(old, path))
        for depth in range(len(path) - 1, 0, -1):
            if desired.at(result, path[:depth]) == {} and desired.at(old, path[:depth]) is None:
                _set_value(result, path[:depth], None)
    if result == old:
        return before
    return (json.dumps(result, indent=4) + "\n").encode()


def _set_value(config: dict[str, Any], path: desired.Path, value: Any) -> None:
    """Set a value at a path, or remove it for None."""
    for key in path[:-1]:
        if key not in config and value is None:
            return
        config = config.setdefault(key, {})
    if value is None:
        config.pop(path[-1], None)
    else:
        config[path[-1]] = value


_BUSY = (
    "if systemctl is-active --quiet docker.service && "
    f"{{ [ -e {desired.DROPIN} ] || [ -e /var/lib/sparkrack/removing/docker ]; }}; then "
    "n=$(docker -H unix:///run/docker.sock ps -q | wc -l); "
    '[ "$n" = 0 ] || echo "block docker is restarted, which may end the $n running containers; end them first '
    '(docker ps), then run again"; fi'
)

TRACES = Traces(
    ROLE.key,
    own=(desired.DROPIN,),
    edited={desired.CONFIG: _without_settings},
    links=("/etc/systemd/system/*.wants/docker.service", "/etc/rc?.d/*docker"),
    refuse=_BUSY,
    after=(
        "systemctl daemon-reload; rm -f /run/sparkrack/docker.*; systemctl reset-failed docker.service || true; "
        "systemctl try-restart docker.service"
    ),
).register()

_MEMBERS = "removal-docker-members"
host_facts.register(
    _MEMBERS,
    host_facts.Probe(
        commands={
            _MEMBERS: "sed -n 's/^docker:[^:]*:[^:]*:/now /p' /etc/group; "
            f"[ ! -e {RECORD}/etc/group ] || {{ sed -n 's/^docker:[^:]*:[^:]*:/before /p' {RECORD}/etc/group; "
            "echo recorded; }"
        }
    ),
)


@deploy(ROLE.title)
def remove(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Bring back the settings of the engine, and the members of its group."""
    take_off(name="Take the rack's settings off docker", traces=TRACES, _serial=True)
    leave_group(name="Take the rack's user out of group docker", rack=rack, _serial=True)


def _read_members(host: Host, rack: Rack) -> tuple[str, str]:
    return rack.access.user, host_facts.read(host, _MEMBERS).text(_MEMBERS)


@operation_on_host(_read_members)
def leave_group(facts: tuple[str, str]) -> Changeset:
    """Take the user out of the group, unless it was a member before."""
    user, listing = facts
    members = {line.partition(" ")[0]: line.partition(" ")[2].split(",") for line in listing.splitlines()}
    if "recorded" not in members or user not in members.get("now", ()) or user in members.get("before", ()):
        return Changeset(in_sync_reason=f"{user} is as before")
    command = sudo_script(f"gpasswd --delete {quote(user)} docker > /dev/null")
    return Changeset(events=acted(Action.LEAVE_GROUP, user, detail="docker"), commands=(command,))
