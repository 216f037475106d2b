"""Desired state of a node's docker. Pure: from rack.yaml and the facts of a node."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from core.model import CONTAINER_SLICE
from core.util.event import Action, Event, EventKind, field_change
from core.util.managed_file import header
from roles.docker import json_edit
from roles.docker.options import DockerOptions

CONFIG = "/etc/docker/daemon.json"
DROPIN = "/etc/systemd/system/docker.service.d/50-sparkrack.conf"
RUN = "/run/sparkrack"
"""Folder in which each start of the engine keeps a copy of its configuration file, under the id of that start."""

Path = tuple[str, ...]

SLICE_KEY: Path = ("cgroup-parent",)
OPTIONS: Path = ("exec-opts",)
LIVE: Path = ("live-restore",)
NVIDIA: Path = ("runtimes", "nvidia")
RELOADED = frozenset({LIVE, NVIDIA})
"""Settings that dockerd applies on SIGHUP (moby, daemon/reload.go); our other settings need a restart."""
DRIVER = "native.cgroupdriver"
_COMMON = frozenset({"labels", "labels-regex", "env", "env-regex", "tag", "mode", "max-buffer-size"})
_LOG_OPTIONS = {"json-file": _COMMON | {"max-size", "max-file", "compress"}, "journald": _COMMON}
"""Options of each log driver; with any other, dockerd does not start (moby, daemon/logger)."""


def dropin(rack: str) -> bytes:
    """Return the unit drop-in by which each start of dockerd copies the daemon.json that it reads.

    Times would not work: with a clock that is set after boot a start looks older or newer than a file. systemd gives
    each start an id of its own, which dockerd has in its environment; so the copy is never mistaken for that of another
    start. `-`: docker must not fail to start because of it.
    """
    return f"""\
{header(rack)}
[Service]
ExecStartPre=-/bin/sh -c 'umask 077; mkdir -p {RUN}; c={RUN}/docker.$$INVOCATION_ID; \
if [ -e {CONFIG} ]; then cat {CONFIG} > "$$c"; else echo {{}} > "$$c"; fi'
""".encode()


def wanted(config: Mapping[str, Any], docker: DockerOptions) -> dict[Path, Any]:
    """Our settings in a daemon.json, by their path; `exec-opts` is a list in which the options of others stay.

    Raises ValueError where the file has something of another kind.
    """
    size: dict[Path, Any] = {
        ("log-opts", "max-size"): docker.log_size.lower(),
        ("log-opts", "max-file"): str(docker.log_files),
    }
    return {
        SLICE_KEY: CONTAINER_SLICE,
        OPTIONS: _cgroup_driver_options(config.get("exec-opts")),
        ("log-driver",): docker.logs,
        **(size if docker.logs == "json-file" else {}),
        LIVE: docker.live_restore,
        ("default-ulimits", "memlock"): {"Hard": -1, "Name": "memlock", "Soft": -1},
    }


def _cgroup_driver_options(found: Any) -> list[str]:
    if found is None:
        found = []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("exec-opts is not a list of texts")
    target = f"{DRIVER}=systemd"
    drivers = [one for one in found if one.partition("=")[0] == DRIVER]
    if drivers == [target]:
        return found
    return [*(one for one in found if one not in drivers), target]


def at(config: Mapping[str, Any], path: Path) -> Any:
    """The value at a path; None when it is missing. Raises ValueError where no object is that should be one."""
    value: Any = config
    for depth, key in enumerate(path):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError(f"{' '.join(path[:depth])} is not an object")  # noqa: TRY004 - a fault of the file
        value = value.get(key)
    return value


def differences(config: Mapping[str, Any], docker: DockerOptions) -> dict[Path, tuple[Any, Any]]:
    """Return our settings that differ: actual and desired value."""
    found = {path: (at(config, path), value) for path, value in wanted(config, docker).items()}
    return {path: pair for path, pair in found.items() if _canonical_text(pair[0]) != _canonical_text(pair[1])}


def _canonical_text(value: Any) -> str:
    """A value as text that does not depend on the order of keys. (In Python, 1 equals True.)"""
    return json.dumps(value, sort_keys=True)


def foreign(config: Mapping[str, Any], docker: DockerOptions) -> list[str]:
    """Log options that the desired log driver does not know, left from another driver."""
    options = at(config, ("log-opts",))
    if options is not None and not isinstance(options, Mapping):
        raise ValueError("log-opts is not an object")
    return [key for key in options or () if key not in _LOG_OPTIONS[docker.logs] and not key.startswith("cache-")]


def edited(text: str, docker: DockerOptions) -> str:
    """The same daemon.json with our settings in it; the very same text when they are right already."""
    config = json_edit.parse(text)
    for key in foreign(config, docker):
        text = json_edit.drop(text, ("log-opts", key))
    for path, (_, value) in differences(config, docker).items():
        text = json_edit.put(text, path, value)
    return text


def setting_changes(config: Mapping[str, Any], docker: DockerOptions) -> list[Event]:
    """Return the changes of a daemon.json, setting by setting. Other values are not shown: they may be secrets."""
    removed = (f"log-opts {key} is removed, {docker.logs} has no such option" for key in foreign(config, docker))
    changes = [Event(EventKind.CHANGE, path=CONFIG, action=Action.SET, detail=text) for text in removed]
    for path, (now, target) in differences(config, docker).items():
        old = "none" if now is None else json.dumps(now)
        changes.append(field_change(CONFIG, " ".join(path), old, json.dumps(target)))
    return changes


_FLAGS: Mapping[str, str] = {
    "--cgroup-parent": "cgroup-parent",
    "--exec-opt": "exec-opts",
    "--log-driver": "log-driver",
    "--log-opt": "log-opts",
    "--live-restore": "live-restore",
    "--default-ulimit": "default-ulimits",
    "--config-file": "the place of this file",
}


def flags_in_the_way(command: list[str]) -> list[str]:
    """Return problems of a dockerd's command line: a flag must not set what daemon.json sets as well."""
    found = sorted({word.partition("=")[0] for word in command[1:]} & _FLAGS.keys())
    return [
        f"dockerd is started with {flag}, and {_FLAGS[flag]} is for {CONFIG} to say; remove the flag from the unit "
        "(sudo systemctl edit --full docker) or from /etc/default/docker, then: sudo systemctl restart docker"
        for flag in found
        if flag != "--config-file" or f"{flag}={CONFIG}" not in command
    ]


def mode_fault(stat: str) -> str | None:
    """Return why owner, mode or kind of a daemon.json must be corrected, from `mode:user:group:kind`; None if it is
    correct.

    A stricter mode is kept: the file may contain a proxy's password.
    """
    found = re.fullmatch(r"([0-7]{3,4}):(\w[\w.-]*):(\w[\w.-]*):([a-z ]+)", stat)
    if not found:
        raise ValueError(f"{CONFIG}: its mode is unknown: unexpected output {stat[:60]!r}")
    mode, user, group, kind = found.groups()
    if kind == "symbolic link":
        return "is a link, and becomes a file"
    if not kind.startswith("regular"):
        raise ValueError(f"{CONFIG}: is a {kind}")
    if (user, group) != ("root", "root") or int(mode, 8) & 0o7133 or not int(mode, 8) & 0o400:
        return f"owner and mode {user}:{group} {mode} -> root:root {mode_of(stat)}"
    return None


def mode_of(stat: str | None) -> str:
    """The mode that a new daemon.json gets: 644, or less where less was readable."""
    found = re.match(r"([0-7]{3,4}):[^:]+:[^:]+:regular", stat or "")
    return f"{int(found[1], 8) & 0o044 | 0o600:o}" if found else "644"


def missing_group_membership(user: str, listing: str) -> str | None:
    """Return what a user lacks to use docker, or None; from `name:gid` of all users, an empty line, and the group's
    line.

    Raises ValueError for unparsable input.
    """
    users, empty, group = listing.partition("\n\n")
    gids = dict(line.split(":", 1) for line in users.splitlines() if ":" in line)
    if not empty or not gids:
        raise ValueError("users of the node: unknown")
    if user not in gids:
        raise ValueError(f"access.user: {user} is not in /etc/passwd of the node")
    lines = group.splitlines()
    if not lines:
        return "group docker"
    fields = lines[0].split(":")
    if len(lines) != 1 or len(fields) != 4 or not fields[2].isdigit():
        raise ValueError(f"group docker: unexpected probe output {group[:60]!r}")
    return None if user in fields[3].split(",") or gids[user] == fields[2] else "membership"
