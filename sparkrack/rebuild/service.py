"""Is a node at work? How many containers run on it, if it lets our key in at all."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from sparkrack.fleet import Rack
from sparkrack.fleet.errors import one_line
from sparkrack.proof.machines import ssh_config

CONTAINERS = "find /sys/fs/cgroup -type d -name 'docker-*.scope' | wc -l"
"""Counts the containers that run on a node."""
SECONDS = 30
"""How long a node may take to answer."""
LONGEST = 120.0
"""For so long at most a node is asked again."""
PAUSE = 1.0
FAILED = 255
"""ssh itself failed."""


class Standing(Enum):
    """How a node stands to us."""

    OURS = "lets our key in"
    NOT_OURS = "is not in service: our key, or its host key, is not what this rack knows"
    AWAY = "does not answer, so it is not in service"
    UNKNOWN = "cannot be told"


_NOT_OURS = ("Permission denied (", "Host key verification failed")
_AWAY = ("Connection refused", "No route to host", "Network is unreachable", "Connection timed out", "Host is down")


@dataclass(frozen=True)
class Service:
    """What a node says of its work. `containers`: how many run, only when it is OURS. `why`: what ssh or it said.
    `passing`: it may be otherwise in a moment, as of a node on its way up that takes nobody yet."""

    standing: Standing
    containers: int = 0
    why: str = ""
    passing: bool = False


def asked(rack: Rack, nodes: Iterable[str], question: str, patience: float = 0) -> dict[str, Service]:
    """Ask nodes side by side; `question` is the command that counts their containers. Nothing is changed. `patience`:
    for how many seconds those are asked again that may be on their way up.

    It needs no root: a node on which only sudo is broken is at work all the same.
    """
    until = time.monotonic() + min(patience, LONGEST)
    found = _asked(rack, list(nodes), question)
    while (again := [name for name, service in found.items() if service.passing]) and time.monotonic() < until:
        time.sleep(PAUSE)
        found |= _asked(rack, again, question)
    return found


def _asked(rack: Rack, names: list[str], question: str) -> dict[str, Service]:
    with TemporaryDirectory(prefix="sparkrack-") as folder, ThreadPoolExecutor(max_workers=8) as pool:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(rack), errors="surrogateescape")
        return dict(zip(names, pool.map(lambda name: _one(name, config, question), names), strict=True))


def _one(node: str, config: Path, question: str) -> Service:
    try:
        done = subprocess.run(
            ["ssh", "-F", str(config), node, question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Service(Standing.UNKNOWN, why=f"no answer within {SECONDS} s")
    except OSError as error:
        return Service(Standing.UNKNOWN, why=f"ssh: {error.strerror}")
    return judged(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def judged(code: int, said: str, complained: str) -> Service:
    """What an answer means. Whatever is not known to be harmless is unknown."""
    lines = [one_line(line.strip()) for line in complained.splitlines() if line.strip()]
    why = (lines[-1] if lines else f"exit {code}")[:200]
    if code == 0:
        text = said.strip()
        if text.isascii() and text.isdecimal() and len(text) < 7:
            return Service(Standing.OURS, containers=int(text))
        return Service(Standing.UNKNOWN, why=f"it counts {one_line(text)[:40] or 'nothing'}")
    if code == FAILED and lines:
        if any(word in lines[-1] for word in _NOT_OURS):
            return Service(Standing.NOT_OURS, why=why)
        # A connection that is taken and then silent is a machine that lives.
        if lines[-1].startswith("ssh: connect to host") and any(lines[-1].endswith(word) for word in _AWAY):
            return Service(Standing.AWAY, why=why)
    return Service(Standing.UNKNOWN, why=why, passing=code == FAILED)


def refusals(
    found: Mapping[str, Service], rebuilt: Collection[str], named: Collection[str], *, ready: bool = False
) -> list[str]:
    """Why these nodes may not be touched, a line each; none when they may.

    `rebuilt`: those that are set up anew, the others are only cabled to a switch that is. `named`: whose containers may
    end. `ready`: the nodes that are rebuilt have been set up for us, so that each has to answer.
    """
    lines = []
    for name, service in found.items():
        if name in named:
            continue
        what = "rebuilt" if name in rebuilt else "cabled to the switch"
        if service.standing is Standing.OURS and service.containers:
            count = f"{service.containers} container{'' if service.containers == 1 else 's'}"
            lines.append(f"{name}: {count} run on it and it is {what}; stop them, or say --containers {name}")
        elif service.standing is Standing.UNKNOWN or (
            ready and name in rebuilt and service.standing is not Standing.OURS
        ):
            why = f"whether containers run on it cannot be told: {service.why}"
            lines.append(f"{name}: {why}; run again, or say --containers {name}")
    return lines
