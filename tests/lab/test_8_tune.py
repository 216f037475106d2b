"""`sparkrack serve tune` on two nodes and one cable: six values, of which one is kept, with SIGKILL in a measurement.

Docker, the memory guard, the kernel's log and ssh are real; the engine and its measuring tool are stand-ins in an
image, which the variable STANDIN_TUNED makes fast, slow or bad. The value `eats` takes the memory of its node for real.
The first tier has the same values, and SIGKILL at each step, in tests/serving/test_tune.py, without containers.

UPDATE_DOCS=1: what the terminal showed is written to docs/tune.md.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.model import load
from lab import namespace as ns
from lab.image import build
from lab.layout import REGISTRY
from lab.paths import cache
from lab.served_unit import ENGINE, IMAGE, UNIT, VERSION, rack_text
from serving.options import served_units
from sparkrack.serving.tune_ledger import TuneLedger, read_ledger
from tests.lab.virtual import REPOSITORY, VirtualRack
from tests.unit.cli.replayed_terminal import lines_of_screen

pytestmark = pytest.mark.soak

NODES = ("spark1", "spark2")
OTHER = "library/first:1"
RACK = f"""\
rack: pair
access: {{user: ops, key: ~/.ssh/id_ed25519, known_hosts: known_hosts}}
nodes:
  spark1: {{address: 10.77.0.11, vendor: nvidia, ports: {{1: spark2/1}}}}
  spark2: {{address: 10.77.0.12, vendor: nvidia}}
images:
  - {OTHER}
"""
"""The two Sparks and the cable that are simulated."""
KEY = "env.STANDIN_TUNED"
DECLARED, BETTER, WORSE = "0.4", "0.1", "0.8"
"""Seconds that the engine takes for each request."""
CHANGES = {
    "context: 1024": "context: 2048",
    'GRACE_SECONDS: "1"': f'GRACE_SECONDS: "1", STANDIN_STOP_SECONDS: "0.5", STANDIN_TUNED: "{DECLARED}"',
    "probe: {": "drain: 5s\n      probe: {every: 5s, limit: 5s, ready: 2m, ",
}
"""Of the lab's unit: its context is long enough to be measured, and what is bad is found out soon."""
COLUMNS, ROWS = 80, 24
BOUND = 600
"""Seconds until a command has ended."""
PAGE = REPOSITORY / "docs/tune.md"
BEGIN, END = "<!-- recorded: tests/lab/test_8_tune.py -->\n", "<!-- end -->\n"


@dataclass
class TunedRack:
    """The virtual rack, whose unit serves with what rack.yaml declares."""

    rack: VirtualRack

    @property
    def file(self) -> Path:
        return self.rack.paths.rack

    @property
    def declared(self) -> str:
        """The value that rack.yaml has."""
        return served_units(load(self.file))[UNIT].env["STANDIN_TUNED"]

    @property
    def ledgers(self) -> list[Path]:
        """The ledgers of the unit, the newest last."""
        return sorted((self.rack.folder / "state/sparkrack").glob(f"*/tune/{UNIT}/*.ndjson"))

    @property
    def ledger(self) -> TuneLedger:
        return read_ledger(self.ledgers[-1])

    @property
    def verdicts(self) -> dict[str, tuple[str, str]]:
        """How each value was judged, and the cause of a failure."""
        return {str(one.value): (one.verdict, one.cause) for one in self.ledger.judged}

    def start(self, words: list[str], output: int) -> subprocess.Popen[bytes]:
        """Begin `sparkrack serve` with these words; `output`: a terminal or a file."""
        inner = self.rack.inner
        return subprocess.Popen(
            [*inner.entering(), "sparkrack", "serve", *words],
            cwd=REPOSITORY,
            env={**self.rack.environment, **inner.variables(), "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    def shown(self, *words: str) -> str:
        """Run `sparkrack serve` on a terminal, without a failure; return what the screen shows."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        seen = b""
        with self.start(list(words), its) as run:
            os.close(its)
            with suppress(OSError):  # Linux answers so when the last process has closed the terminal
                while part := os.read(ours, 65536):
                    seen += part
            code = run.wait(BOUND)
        os.close(ours)
        screen = "\n".join(lines_of_screen(seen.decode(), COLUMNS))
        print(screen)
        assert code == 0, screen
        return screen

    def killed_in_a_measurement(self, words: list[str]) -> None:
        """Begin `serve tune`, and SIGKILL it when a value was measured once."""
        log, before = self.rack.folder / "killed.log", self.ledgers
        with log.open("wb") as file, self.start(words, file.fileno()) as run:
            end = time.monotonic() + BOUND
            while self.ledgers == before or f'"event":"run","key":"{KEY}"' not in self.ledgers[-1].read_text():
                assert run.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            (pid,) = ns.matching(self.rack.paths.namespace, "tune")
            os.kill(pid, signal.SIGKILL)
        assert self.ledger.ended is None

    def unlock(self) -> None:
        """End the lock of a killed run, as the message of the next one says."""
        refused = self.rack.command("serve", "tune", UNIT, "--resume", "-y")
        found = re.search(r"sparkrack unlock (\S+)", refused.stdout + refused.stderr)
        assert found, refused.stdout + refused.stderr
        self.rack.inside("sparkrack", "unlock", found[1])

    def values_of_nodes(self) -> list[str]:
        """What each node has in the environment of its container."""
        ask = f"sed -n s/^STANDIN_TUNED=//p /etc/sparkrack/serve/{UNIT}.env"
        return [self.rack.ssh(node, ask).strip() for node in NODES]

    def serves_with(self, value: str) -> None:
        """The unit serves with this value, which rack.yaml and the nodes have, and nothing else is changed."""
        assert self.declared == value
        assert self.values_of_nodes() == [value] * len(NODES)
        assert not self.file.with_suffix(".tune").exists()
        shown = self.rack.inside("sparkrack", "serve", "status", UNIT)
        assert re.search(rf"{UNIT}\b.*\b(ready|busy)\b", shown.stdout), shown.stdout
        planned = self.rack.inside("sparkrack", "plan", "--only", "serving")
        assert re.search(r"\b0 changes\b|nothing to do|in sync", planned.stdout), planned.stdout


@pytest.fixture(scope="module")
def tuned() -> Iterator[TunedRack]:
    folder = REPOSITORY / ".lab-test-tune"
    rack = VirtualRack(folder, NODES)
    rack.lab("down")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "two-sparks.yaml"
    file.write_text(RACK)
    try:
        rack.lab("up", "--rack", str(file))
        text = rack_text(rack.paths.rack.read_text(), folder, NODES)
        for before, after in CHANGES.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        rack.paths.rack.write_text(text)
        base = build.base(cache(), print)
        push = [sys.executable, "-m", "lab.images", "--engine", IMAGE, ENGINE, VERSION, f"10.77.0.1:{REGISTRY}"]
        rack.inside(*push, str(base.busybox), str(base.python), OTHER, IMAGE)
        for node in NODES:
            rack.ssh(node, "systemctl --quiet enable --now lab-rdma")
        rack.deploy("-y")
        rack.inside("sparkrack", "serve", "start", UNIT)
        yield TunedRack(rack)
    finally:
        rack.lab("down")


def test_a_run_that_is_killed_is_resumed_and_keeps_the_better_value(tuned: TunedRack) -> None:
    before = tuned.file.read_text()
    tuned.killed_in_a_measurement(["tune", UNIT, "--try", f"{KEY}={BETTER}", "-y"])
    assert tuned.file.read_text() == before
    assert tuned.values_of_nodes() == [BETTER] * len(NODES), "it was killed with the files of the trial on the nodes"
    tuned.unlock()
    screen = tuned.shown("tune", UNIT, "--resume", "-y")
    assert tuned.verdicts == {"": ("baseline", ""), BETTER: ("kept", "")}, screen
    assert tuned.file.read_text() == before.replace(f'STANDIN_TUNED: "{DECLARED}"', f'STANDIN_TUNED: "{BETTER}"')
    tuned.serves_with(BETTER)
    if os.environ.get("UPDATE_DOCS") == "1":
        head, _, rest = PAGE.read_text().partition(BEGIN)
        shown = screen.replace(f"{tuned.rack.folder}/state", "~/.local/state")
        PAGE.write_text(f"{head}{BEGIN}\n```\n{shown}\n```\n\n{END}{rest.partition(END)[2]}")


def test_what_is_not_better_or_fails_is_not_kept(tuned: TunedRack) -> None:
    before, declared = tuned.file.read_text(), tuned.declared
    screen = tuned.shown("tune", UNIT, "--try", f"{KEY}=eats,ends,hangs,{WORSE},garbage", "-y")
    assert tuned.verdicts == {
        "": ("baseline", ""),
        "eats": ("failed", "memory"),
        "ends": ("failed", "end"),
        "hangs": ("failed", "hang"),
        WORSE: ("not better", ""),
        "garbage": ("failed", "answer"),
    }, screen
    eaten = next(one for one in tuned.ledger.judged if one.value == "eats")
    assert "sparkrack-memory-guard: " in eaten.reason, "the guard of the node has ended it"
    assert tuned.file.read_text() == before
    tuned.serves_with(declared)
