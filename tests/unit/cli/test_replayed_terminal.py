"""Nothing that a verb prints is erased: the bytes that a terminal got are replayed, and each printed line is on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkrack.cli.main import VERBS
from tests.unit.cli.cli_fixtures import PLAN, SWAPS, node, settings
from tests.unit.cli.replayed_terminal import RECORDING, SPARKRACK, lines_of_screen, replay
from tests.unit.cli.serve_rack import ServeRack, answer
from tests.unit.engine.ssh_node import SshNode, rack_file

ONE_NODE = ("--limit", "spark1")
WORDS: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "plan": PLAN,
    "apply": ("apply", "-y", *PLAN[1:]),
    "drift": ("drift", *PLAN[1:], "--no-history"),
    "verify": ("verify", *PLAN[1:]),
    "topology": ("topology", "--seen", *ONE_NODE),
    "status": ("status", *ONE_NODE),
    "watch": ("watch", "--once"),
    "runs": ("runs",),
    "autopsy": ("autopsy", "spark1"),
    "support": ("support", "spark1", "--out", "support.tgz"),
    "accept": ("accept",),
    "export": ("export", "hosts"),
    "serve": ("serve", "status"),
    "init": ("init", "--node", "spark1=127.77.0.11", "--vendor", "asus", "--out", "new.yaml"),
    "adopt": ("adopt", "--node", "spark1=127.77.0.11", "--out", "adopted.yaml"),
    "bootstrap": ("bootstrap", "nodes", "spark1", "--dry", "--timeout", "0"),
    "rebuild": ("rebuild", "spark1", "--as", "nvidia"),
    "seed": ("seed", "spark1", "--out", "seeds"),
    "remove": ("remove", "--dry", *ONE_NODE),
    "up": ("up", "--dry", "--timeout", "0"),
    "upgrade": ("upgrade", "driver", "spark1"),
    "reboot": ("reboot", "-y", *ONE_NODE),
    "drill": ("drill", "spark1", "--level", "mark"),
    "switch": ("switch", "restore", "crs812", "--list"),
    "unlock": ("unlock", "20260101T000000-abcd"),
    "lab": ("lab", "status"),
    "completion": ("completion", "bash"),
}


def test_each_verb_is_replayed() -> None:
    assert set(WORDS) == set(VERBS)


@pytest.mark.parametrize("verb", WORDS)
def test_each_line_that_a_verb_prints_stays_on_the_terminal(tmp_path: Path, verb: str) -> None:
    there = SshNode(node(**SWAPS))
    try:
        rack = rack_file(tmp_path, there)
        env = settings(tmp_path, RACK=str(rack), SPARKRACK_LAB=str(tmp_path / "lab"), CRS812_PASSWORD="secret")
        shown = replay(tmp_path, WORDS[verb], env)
    finally:
        there.close()
    print("\n".join(shown.screen))
    assert "Usage:" not in shown.screen[0], "the words of this verb are wrong"
    assert shown.printed, shown.screen
    assert shown.lost == [], shown.screen


def test_each_phase_of_a_unit_that_starts_stays_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = ServeRack(tmp_path, monkeypatch)
    gating, starting = answer("down", "gating"), answer("down", "gating", "starting")
    rack.answers(answer("down", desired_state="down"), gating, starting, answer("down", "gating", "starting", "ready"))
    program = f"from sparkrack.serving import unit_run\nunit_run.POLL_SECONDS = 0.3\n{SPARKRACK}"
    shown = replay(tmp_path, ["serve", "start", "qwen", "--rack", str(rack.file)], settings(tmp_path), program)
    assert shown.code == 0, shown.screen
    assert [line.split()[1] for line in shown.screen if line.startswith("qwen: ")] == [
        *("gating:", "starting:", "ready:", "ready,")
    ]
    assert shown.lost == [], shown.screen


DISPLAY = """
from sparkrack.terminal.progress import ProgressDisplay
print("a line of the shell above")
display = ProgressDisplay()
with display.shown():
    for number in range(5):
        display.phase(f"phase {number}", [f"spark{host}" for host in range(1 + number % 3)])
        display.say(f"result {number}")
        display.warn(f"warning {number}")
        display.finish("spark0")
        with display.hidden():
            print(f"answer {number}")
print("end")
"""


def test_results_and_answers_between_pictures_stay(tmp_path: Path) -> None:
    shown = replay(tmp_path, [], settings(tmp_path), RECORDING + DISPLAY)
    assert len(shown.printed) == 2 + 5 * 3
    assert shown.screen == shown.printed, "only what was printed is on the screen, and all of it"


def test_a_replayed_screen_erases_what_a_terminal_erases() -> None:
    assert lines_of_screen("one\r\ntwo\r\n\x1b[1A\x1b[2Kthree\r\n") == ["one", "three"]
