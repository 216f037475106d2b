"""A rack of nodes that are shells of this machine, with a coordinator that plays prepared answers."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import image_lock, load, model_lock
from core.model.lock_file import lock_path
from serving.desired import declared_version, locked_unit
from serving.options import served_units
from serving.programs import COORDINATOR
from sparkrack.cli.main import sparkrack
from sparkrack.serving import recreation, unit_run
from tests.unit.model.serving_racks import machines, put, text, unit
from tests.unit.roles.serving_units import PINS, RECORDS

# A node is a folder: its files, and whether it is off.
SSH = """\
#!/bin/sh
node="$NODES/$3"
[ ! -e "$node/off" ] || { echo "ssh: connect: No route to host" >&2; exit 255; }
export NODE="$node" PATH="$NODES/bin:$PATH"
case $4 in
"sudo -n sh") sed -u "s#/run/sparkrack#$node/run/sparkrack#g; s#/etc/sparkrack#$node/etc/sparkrack#g
s#/usr/local/lib#$node/usr/local/lib#g; s#/var/lib/sparkrack#$node/var/lib/sparkrack#g
s#/etc/systemd/system#$node/etc/systemd/system#g" | sh ;;
*) exec sh -c "$4" ;;
esac
"""
SUDO = """#!/bin/sh
shift
exec "$@"
"""
# `status` prints the next answer, the last one from then on; `up` and `down` print what their file has.
COORDINATOR_STANDIN = """\
#!/bin/sh
unit=$(basename "$1" .json)
shift
echo "$unit $*" >> "$NODE/asked"
[ ! -e "$NODE/fault" ] || { cat "$NODE/fault" >&2; exit 1; }
case $1 in
status)
    file=$(ls "$NODE/$unit."*.status | head -n 1)
    cat "$file"
    [ "$(ls "$NODE/$unit."*.status | wc -l)" = 1 ] || rm "$file" ;;
*)
    [ ! -e "$NODE/refusal" ] || { cat "$NODE/refusal" >&2; exit 1; }
    echo "unit $unit is asked to go $1" ;;
esac
"""
BEGIN = 1_790_000_000.0
"""Seconds since 1970 at which the first transition of an answer was."""


def answer(*states: str, name: str = "qwen", desired_state: str = "up", **values: Any) -> dict[str, Any]:
    """What the coordinator prints: the unit went through these states, 10 s each, and is in the last of them for 70
    s."""
    transitions: list[list[Any]] = [
        [BEGIN + 10 * number, state, 7, f"reason {number}"] for number, state in enumerate(states)
    ]
    since, state, generation, reason = transitions[-1]
    ranks = [
        {"rank": number, "node": f"n{number}", "state": "running", "generation": 7, "age_s": 0.4, "detail": ""}
        for number in range(2)
    ]
    return {
        "name": name,
        "desired_state": desired_state,
        "state": state,
        "reason": reason,
        "cause": "asked",
        "generation": generation,
        "since": since,
        "started": BEGIN,
        "proven": 0.0,
        "restarts": [],
        "boots": [],
        "unplanned": [],
        "figures": {"gates_s": 10.0},
        "failed_gates": {},
        "transitions": transitions,
        "clock": since + 70,
        "misses": 0,
        "unsaved": "",
        "ranks": ranks,
        "unconfirmed": [],
        **values,
    }


class ServeRack:
    """Two nodes n0 and n1, of which n0 stores the lock, and a unit qwen on both."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name, content in {"bin/ssh": SSH, "bin/sudo": SUDO}.items():
            self.program(name, content)
        for name in ("n0", "n1", "n2"):
            (folder / name / "run").mkdir(parents=True)
            (folder / name / "etc/sparkrack/serve").mkdir(parents=True)
            (folder / f"{name}{COORDINATOR}").parent.mkdir(parents=True)
            self.program(f"{name}{COORDINATOR}", COORDINATOR_STANDIN)
        self.declare({"qwen": unit()})
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("NODES", str(folder))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(unit_run, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(unit_run, "SILENCE_SECONDS", 0.05)
        monkeypatch.setattr(recreation, "COORDINATOR_SECONDS", 0.5)

    def program(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)
        (self.folder / name).chmod(stat.S_IRWXU)

    def declare(self, units: dict[str, Any], **sections: Any) -> None:
        """Write a rack file with these units and further sections; their heads have files of the units."""
        self.file = put(self.folder, text(units, machines(3), **sections))
        for name, one in units.items():
            (self.folder / one["nodes"][0] / f"etc/sparkrack/serve/{name}.json").write_text("{}")

    def answers(self, *answers: dict[str, Any] | str, head: str = "n0", name: str = "qwen") -> None:
        """Set what the coordinator prints, one after the other."""
        for number, one in enumerate(answers):
            content = one if isinstance(one, str) else json.dumps(one)
            (self.folder / head / f"{name}.{number:03}.status").write_text(content)

    def version(self, name: str = "qwen") -> str:
        """The version of the declared files of a unit; writes the lock file that these follow from."""
        rack, lock = load(self.file), lock_path(self.file)
        image_lock.write(lock, PINS)
        model_lock.write(lock, RECORDS)
        return declared_version(locked_unit(rack, served_units(rack)[name], PINS, RECORDS))

    def fail(self, kind: str, content: str, node: str = "n0") -> None:
        """Let the coordinator's program end with 1: `fault` for each call, `refusal` for a desired state."""
        (self.folder / node / kind).write_text(f"{content}\n")

    def off(self, node: str) -> None:
        (self.folder / node / "off").touch()

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["serve", *words, "--rack", str(self.file)])

    def asked(self, node: str = "n0") -> list[str]:
        """The commands to the coordinator, without the questions for its state."""
        file = self.folder / node / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if not line.endswith(" status")]

    @property
    def lock(self) -> Path:
        return self.folder / "n0/run/sparkrack/run.lock"
