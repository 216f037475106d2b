"""What shall be true of a node's docker. Pure: from rack.yaml and what a node holds to what it shall hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from roles.docker import layout
from sparkrack.fleet import SLICE, Docker

CONFIG = "/etc/docker/daemon.json"
DROPIN = "/etc/systemd/system/docker.service.d/50-sparkrack.conf"
RUN = "/run/sparkrack"
"""Where each start of the engine leaves a copy of the file that it was started with, under the id of that start."""

Path = tuple[str, ...]

SLICE_KEY: Path = ("cgroup-parent",)
OPTIONS: Path = ("exec-opts",)
LIVE: Path = ("live-restore",)
NVIDIA: Path = ("runtimes", "nvidia")
RELOADED = frozenset({LIVE, NVIDIA})
"""What dockerd takes up on SIGHUP (moby, daemon/reload.go); all else of ours needs a restart."""
DRIVER = "native.cgroupdriver"
_LOG_OPTIONS = frozenset(
    {"max-size", "max-file", "compress", "labels", "labels-regex", "env", "env-regex", "tag", "mode", "max-buffer-size"}
)
"""What json-file has options for; with any other, dockerd does not start (moby, daemon/logger)."""


def dropin(rack: str) -> bytes:
    """The unit drop-in by which each start of dockerd notes the daemon.json that it reads.

    Times would not do: a clock that is set after boot makes a start look older or newer than a file. systemd gives
    each start an id of its own, which dockerd carries in its environment; so the copy cannot be taken for that of
    another start. `-`: docker must not fail to start for it.
    """
    return f"""\
# Written by sparkrack for the rack {rack}; a change here is overwritten.
[Service]
ExecStartPre=-/bin/sh -c 'umask 077; mkdir -p {RUN}; c={RUN}/docker.$$INVOCATION_ID; \
if [ -e {CONFIG} ]; then cat {CONFIG} > "$$c"; else echo {{}} > "$$c"; fi'
""".encode()


def wanted(config: Mapping[str, Any], docker: Docker) -> dict[Path, Any]:
    """Our settings in a daemon.json, by their path; `exec-opts` is a list in which the options of others stay.

    Raises ValueError where the file has something of another kind.
    """
    return {
        SLICE_KEY: SLICE,
        OPTIONS: _options(config.get("exec-opts")),
        ("log-driver",): "json-file",
        ("log-opts", "max-size"): docker.log_size.lower(),
        ("log-opts", "max-file"): str(docker.log_files),
        LIVE: docker.live_restore,
        ("default-ulimits", "memlock"): {"Hard": -1, "Name": "memlock", "Soft": -1},
    }


def _options(found: Any) -> list[str]:
    if found is None:
        found = []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("exec-opts is no list of texts")
    shall = f"{DRIVER}=systemd"
    drivers = [one for one in found if one.partition("=")[0] == DRIVER]
    if drivers == [shall]:
        return found
    return [*(one for one in found if one not in drivers), shall]


def at(config: Mapping[str, Any], path: Path) -> Any:
    """The value at a path; None when it is missing. Raises ValueError where no object is that should be one."""
    value: Any = config
    for depth, key in enumerate(path):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError(f"{' '.join(path[:depth])} is no object")  # noqa: TRY004 - a fault of the file
        value = value.get(key)
    return value


def differences(config: Mapping[str, Any], docker: Docker) -> dict[Path, tuple[Any, Any]]:
    """Our settings that are not as they shall be: what they are and what they shall be."""
    found = {path: (at(config, path), value) for path, value in wanted(config, docker).items()}
    return {path: pair for path, pair in found.items() if _same(pair[0]) != _same(pair[1])}


def _same(value: Any) -> str:
    """A value as text that does not depend on the order of keys. (In Python, 1 equals True.)"""
    return json.dumps(value, sort_keys=True)


def foreign(config: Mapping[str, Any]) -> list[str]:
    """Log options that json-file does not know, left from another driver."""
    options = at(config, ("log-opts",))
    if options is not None and not isinstance(options, Mapping):
        raise ValueError("log-opts is no object")
    return [key for key in options or () if key not in _LOG_OPTIONS and not key.startswith("cache-")]


def edited(text: str, docker: Docker) -> str:
    """The same daemon.json with our settings in it; the very same text when they are right already."""
    config = layout.parse(text)
    for key in foreign(config):
        text = layout.drop(text, ("log-opts", key))
    for path, (_, value) in differences(config, docker).items():
        text = layout.put(text, path, value)
    return text


def shown(config: Mapping[str, Any], docker: Docker) -> list[str]:
    """What becomes of a daemon.json, setting by setting. Values of others are not shown: there may be secrets."""
    lines = [f"{CONFIG}: log-opts {key} is removed, json-file has no such option" for key in foreign(config)]
    for path, (now, shall) in differences(config, docker).items():
        lines.append(f"{CONFIG}: {' '.join(path)} {'none' if now is None else json.dumps(now)} -> {json.dumps(shall)}")
    return lines


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
    """Faults of a dockerd's command line: what is said there must not be said in daemon.json as well."""
    found = sorted({word.partition("=")[0] for word in command[1:]} & _FLAGS.keys())
    return [
        f"dockerd is started with {flag}, and {_FLAGS[flag]} is for {CONFIG} to say; remove it from the unit "
        "(systemctl cat docker) or from /etc/default/docker and restart docker"
        for flag in found
        if flag != "--config-file" or f"{flag}={CONFIG}" not in command
    ]


def mode_fault(stat: str) -> str | None:
    """Why owner, mode or kind of a daemon.json must be put right, from `mode:user:group:kind`; None when it need not.

    A file that fewer may read is left so: others may keep a proxy's password in it.
    """
    found = re.fullmatch(r"([0-7]{3,4}):(\w[\w.-]*):(\w[\w.-]*):([a-z ]+)", stat)
    if not found:
        raise ValueError(f"{CONFIG}: its mode cannot be told from {stat[:60]!r}")
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


def apart(user: str, listing: str) -> str | None:
    """What a user lacks to use docker, or None; from `name:gid` of all users, an empty line, and the group's line.

    Raises ValueError when it cannot be told.
    """
    users, empty, group = listing.partition("\n\n")
    gids = dict(line.split(":", 1) for line in users.splitlines() if ":" in line)
    if not empty or not gids:
        raise ValueError("users of the node: cannot be told")
    if user not in gids:
        raise ValueError(f"access.user: {user} is not in /etc/passwd of the node")
    lines = group.splitlines()
    if not lines:
        return "group docker"
    fields = lines[0].split(":")
    if len(lines) != 1 or len(fields) != 4 or not fields[2].isdigit():
        raise ValueError(f"group docker: cannot be told from {group[:60]!r}")
    return None if user in fields[3].split(",") or gids[user] == fields[2] else "membership"
