"""What a tether does with an order of its keeper: alone, with a systemctl that notes how it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.serve_modules import serve_tether, serve_unit
from tests.serving.test_unit_file import MINIMAL, written

START = "start sparkrack-serve-qwen.service"


class LoneTether:
    """The tether of rank 1, whose service is at rest."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.calls.touch()
        (folder / "systemctl").write_text(f'echo "$*" >> {self.calls}\n')
        (folder / "secret").write_text("0" * 64)
        (folder / "secret").chmod(0o600)
        (folder / "boot").write_text("boot1\n")
        systemctl = ["sh", str(folder / "systemctl")]
        values = MINIMAL | {"secret_file": str(folder / "secret"), "systemctl": systemctl}
        unit = serve_unit.load_unit(written(folder, values))
        self.tether = serve_tether.Tether(unit, unit.rank(1), str(folder / "state"), str(folder / "boot"))
        self.tether._service = serve_tether.ServiceState("inactive")

    def run(self, generation: int, verdict: tuple[int, bool, str] | None) -> list[str]:
        """Return what systemctl was asked for after the order to run, with this verdict of the gate."""
        self.tether._verdict = verdict
        self.tether._obey("run", generation)
        if self.tether._start and (process := self.tether._start._process):
            process.wait(60)
        return self.calls.read_text().splitlines()


@pytest.fixture
def lone(tmp_path: Path) -> LoneTether:
    return LoneTether(tmp_path)


@pytest.mark.parametrize(
    "verdict", [None, (4, True, ""), (6, True, ""), (5, False, "12 GiB")], ids=["none", "before", "after", "failed"]
)
def test_no_rank_starts_without_a_gate_that_passed_for_its_generation(
    lone: LoneTether, verdict: tuple[int, bool, str] | None
) -> None:
    """Whatever the keeper says, which may have lost its state."""
    assert lone.run(5, verdict) == []
    assert lone.tether.record.generation == 0
    assert lone.run(5, (5, True, "")) == [START]


def test_no_rank_starts_twice_in_a_generation(lone: LoneTether) -> None:
    assert lone.run(5, (5, True, "")) == [START]
    lone.tether._start = None
    lone.tether.record.running = False
    for generation in (5, 4):
        assert lone.run(generation, (generation, True, "")) == [START]
    assert lone.run(6, (6, True, "")) == [START, START]
