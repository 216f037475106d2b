"""Calls of the real `sparkrack` command, with a node at the other end of an ssh connection to loopback."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.unit.cli.runs import BIN, REPOSITORY
from tests.unit.engine.fake_rack import usual
from tests.unit.engine.ssh_node import ADDRESS, Speak, answering
from tests.unit.roles.cases import NOW

PLAN = ("plan", "--limit", "spark1", "--only", "memory")
ESCAPE = "\x1b["
SPARKRACK = str(BIN / "sparkrack")
SWAPS = {"zram_devices": "zram0 4096\n"}


@dataclass(frozen=True)
class Scene:
    """One call. `speak`: the existing node, None for none; `fed`: the input of the shell."""

    code: int
    out: str = ""
    err: str = ""
    words: tuple[str, ...] = PLAN
    speak: Speak | None = None
    known: bool = True
    greets: bool = True
    fed: str = "</dev/null"
    env: Mapping[str, str] = field(default_factory=dict)


def node(**differs: Any) -> Speak:
    """A sound node, but for some answers; its clock is right."""
    reported = dict(usual("memory")) | {key.replace("_", "-"): value for key, value in differs.items()}

    def speak(command: str) -> tuple[int, str, str] | None:
        clock = reported["preflight-now"].replace(str(int(NOW)), str(int(time.time())))
        return answering(reported | {"preflight-now": clock})(command)

    return speak


def hangs(_: str) -> None:
    """A command that never ends."""


def saying(code: int, complaint: str) -> Speak:
    return lambda _: (code, "", f"{complaint}\n")


def settings(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a call: its own folder for what it keeps or leaves."""
    (folder / "tmp").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "RACK")}
    own = {"TMPDIR": str(folder / "tmp"), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(REPOSITORY)}
    return {**kept, **own, "TERM": "xterm", "COLUMNS": "200", **more}


def closed_port() -> int:
    with socket.create_server((ADDRESS, 0)) as taken:
        return int(taken.getsockname()[1])
