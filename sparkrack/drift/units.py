"""A systemd service that looks for drift, and the timer that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SECRETS = "/etc/sparkrack/drift.env"
"""Where the service finds the environment variables that rack.yaml names for passwords; nobody has to have it."""


class UnitError(Exception):
    """A value that no unit file can hold. The text is one line."""


@dataclass(frozen=True)
class Timer:
    """What the two units are about.

    `program`: the absolute path of `sparkrack`. `file`: that of the rack file. `user`: an ordinary user who may log in
    to the nodes. `every`: how often, as `sparkrack drift timer --every` takes it. `state`: that user's state
    folder, where history is kept. `prom`: where metrics go, if anywhere.
    """

    rack: str
    program: Path
    file: Path
    user: str
    every: str
    state: Path
    prom: Path | None = None

    @property
    def name(self) -> str:
        """What the units are called, without their suffix."""
        return f"sparkrack-drift-{self.rack}"


def units(timer: Timer) -> Mapping[str, str]:
    """The text of each unit, by its file's name. Raises UnitError."""
    return {f"{timer.name}.service": _service(timer), f"{timer.name}.timer": _timer(timer)}


def _service(timer: Timer) -> str:
    metrics = f" --prom {_word(timer.prom)}" if timer.prom else ""
    # A dash: what is not there yet does not keep the service from starting, and the program says what it misses.
    folders = [timer.state / "sparkrack", *([timer.prom.parent] if timer.prom else [])]
    writable = " ".join(_path(folder, "-") for folder in folders)
    return f"""\
# Looks for drift and changes nothing, neither on the rack nor here, but for its history and its metrics.
[Unit]
Description=Look for drift of the rack {timer.rack}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={_plain(timer.user)}
Environment={_assigned("RACK", timer.file)} {_assigned("XDG_STATE_HOME", timer.state)}
# Variables that rack.yaml names for passwords, NAME=value; owned by root, mode 0600. systemd reads it, not the user.
EnvironmentFile=-{SECRETS}
ExecStart={_word(timer.program)} drift --quiet{metrics}
# 2 is drift: found, kept and told, so the service did its work. 1 is an error, or something that could not be told.
SuccessExitStatus=2
TimeoutStartSec=15min

ReadWritePaths={writable}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077
"""


def _timer(timer: Timer) -> str:
    return f"""\
[Unit]
Description=Look for drift of the rack {timer.rack} every {timer.every}

[Timer]
OnBootSec=5min
OnUnitActiveSec={timer.every}
RandomizedDelaySec=1min

[Install]
WantedBy=timers.target
"""


def _plain(text: str) -> str:
    """Text as the value of a setting. Raises UnitError for what would end the line or mean something else."""
    if not text.isprintable() or not text or text.endswith("\\"):
        raise UnitError(f"{text!r} cannot stand in a unit file")
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _word(path: Path) -> str:
    """A word of ExecStart, where $ begins a variable."""
    return _quoted(_plain(str(path)).replace("$", "$$"))


def _path(path: Path, mark: str) -> str:
    return _quoted(mark + _plain(str(path)))


def _assigned(name: str, path: Path) -> str:
    return _quoted(f"{name}={_plain(str(path))}")
