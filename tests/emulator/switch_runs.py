"""Whole pyinfra runs against the emulated switch, as a user would start them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.emulator import reference
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.fork_server import ForkedProgram

SETTLE = 4.0

INVENTORY = """
from pathlib import Path

from core.model import load

_rack = load(Path("rack.yaml"))
switches = [
    (
        f"@routeros/{_switch.name}",
        {
            "routeros_address": str(_switch.address),
            "routeros_port": _switch.port,
            "routeros_user": _switch.user,
            "routeros_password": _switch.password,
            "routeros_tls_sha256": _switch.tls.sha256 if _switch.tls else False,
            "rack": _rack,
            "switch": _switch,
        },
    )
    for _switch in _rack.switches.values()
]
nodes = [("@fake/spark1", {"fake_delay": 0, "fake_delay_jitter": 0})]
"""
DEPLOY = f"""
from pyinfra import host
from pyinfra.operations import server

from switch.apply import apply

if "switches" in host.groups:
    apply(host.data.rack, host.data.switch, settle={SETTLE})
if "nodes" in host.groups:
    server.shell(name="Say hello", commands="hello")
"""


@dataclass(frozen=True)
class Ended:
    """Exit status and output of a run."""

    code: int
    text: str

    def __contains__(self, text: str) -> bool:
        return text in self.text

    def lines(self, text: str) -> list[str]:
        """The lines that hold `text`."""
        return [line for line in self.text.splitlines() if text in line]


@dataclass
class Workdir:
    """The folder an operator works in: rack.yaml, inventory, deploy. `switch` are keys that replace the
    rack's."""

    folder: Path
    emulator: Crs812Process
    switch: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Write the files; the rack is the reference one, eight nodes on two cages."""
        reference.write(self.folder / "rack.yaml", self.emulator, self.switch)
        (self.folder / "inventory.py").write_text(INVENTORY)
        (self.folder / "deploy.py").write_text(DEPLOY)

    def start(self, *arguments: str, password: str | None = None, inventory: str = "inventory.py") -> ForkedProgram:
        """Start `pyinfra inventory.py ...` in the folder, without a terminal."""
        self.write()
        environment = os.environ | {
            "CRS812_PASSWORD": self.emulator.password if password is None else password,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYINFRA_PROGRESS": "off",
            "NO_COLOR": "1",
        }
        return ForkedProgram("pyinfra", [inventory, *arguments], cwd=self.folder, env=environment)

    def run(self, *arguments: str, password: str | None = None, typed: str = "") -> Ended:
        """Run it to its end; `typed` is what is entered when it asks."""
        process = self.start("deploy.py", *arguments, password=password)
        text, _ = process.communicate(typed)
        assert process.returncode is not None
        return Ended(process.returncode, text)

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Return the current configuration of the switch."""
        tables = self.emulator.state()["tables"]
        return {
            path: [{name: row[name] for name in names if name in row} for row in tables[path]]
            for path, names in CONFIGURED.items()
        }

    def sent(self, *commands: str) -> list[str]:
        """The sentences the switch was sent whose command is one of these, in order."""
        return [" ".join(line["words"]) for line in self.emulator.log() if line.get("command") in commands]

    def row(self, name: str) -> dict[str, str]:
        """The row of an interface by its default name."""
        rows = self.emulator.state()["tables"]["/interface/ethernet"]
        return next(dict(row) for row in rows if row["default-name"] == name)


CONFIGURED = {
    "/interface/ethernet": (
        *(
            "name",
            "default-name",
            "disabled",
            "auto-negotiation",
            "speed",
            "fec-mode",
            "mtu",
            "l2mtu",
            "comment",
        ),
        *("advertise", "rx-flow-control", "tx-flow-control"),
    ),
    "/interface/bridge": ("name", "disabled", "mtu", "vlan-filtering"),
    "/interface/bridge/port": ("interface", "bridge", "disabled", "hw", "pvid", "comment"),
    "/system/identity": ("name",),
}
"""Menus that a run writes, or might write by mistake; the rest of a row changes by itself."""


OPERATION = "Bring crs812 to its declared state"
SET = "/interface/ethernet/set"
MODES = {"dry": (["--dry"], ""), "asked": ([], "\n\n"), "yes": (["-y"], "")}
"""Arguments of a run, and what is typed when it asks whether to go on, and again when a host failed."""
MakeDesk = Callable[..., Workdir]


def run(workdir: Workdir, mode: str) -> Ended:
    arguments, typed = MODES[mode]
    return workdir.run(*arguments, typed=typed)


def unharmed(ended: Ended, workdir: Workdir, code: int = 1) -> None:
    """The run failed in a way a user can read: the other host went on, no traceback, no secret."""
    assert ended.code == code, ended.text
    assert "Traceback" not in ended
    assert workdir.emulator.password not in ended
    assert ended.lines("[@fake/spark1]")[-1].endswith(("Success", "Ready: deploy.py")), ended.text


def waits_for(condition: Callable[[], bool], process: Any = None) -> None:
    """Wait until something holds; a process that ends before is a failure with its output."""
    end = time.monotonic() + 60
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail(f"the run ended before: {process.communicate()[0]}")
        if time.monotonic() > end:
            pytest.fail("waited in vain")
        time.sleep(0.05)
