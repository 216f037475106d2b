"""`sparkrack bootstrap`: nodes and the switch from their boxes with one command, each for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contact import forked_command
from tests.contact.conftest import Rack
from tests.contact.nodes import Done, Operator, Seed
from tests.emulator.bootstrap_runs import Workdir, boxed
from tests.emulator.emulator_process import Crs812Process, stop_all

SWITCH = """\
switches:
  crs812:
    address: 127.0.0.1
    port: {port}
    tls: {{sha256: "{zeros}"}}
    user: sparkrack
    password: {{file: own}}
    model: CRS812-8DS-2DQ-2DDQ
    cages: {{qsfp56-dd-1: {{split: 4x100G, medium: copper}}}}
"""


class Whole:
    """An operator in front of two nodes and a switch."""

    def __init__(self, operator: Operator, folder: Path) -> None:
        self.operator = operator
        self.emulator = Crs812Process(folder / "switch", **boxed(folder)).start()
        self.workdir = Workdir(folder / "desk", self.emulator)
        text = operator.rack.read_text()
        for number in (1, 2):
            text = text.replace(f"1: spark{3 - number}/1", f"1: crs812/qsfp56-dd-1-{2 * number - 1}")
        text += SWITCH.format(port=self.emulator.tls_port, zeros="0" * 64)
        operator.rack.write_text(text)
        self.workdir.rack.write_text(text)

    def run(self, *words: str) -> Done:
        """`bootstrap` itself."""
        operator, port = self.operator, str(self.emulator.plain_port)
        line = operator.words("--as", "nvidia", "--timeout", "5", "--node-password-file", str(operator.password))
        line += ["--host-keys", str(operator.consoles), "--switch-address", "127.0.0.1", "--switch-api-port", port]
        line += ["--switch-password-file", str(self.workdir.sticker), *words]
        done = Done.of(forked_command.run(line, operator.environment(), 240))
        self.workdir.keeps_quiet(done.output + done.errors)
        return done


@pytest.fixture
def whole(rack: Rack, tmp_path: Path) -> Iterator[Whole]:
    made = Whole(rack(Seed(), Seed(machine_id="f" * 32)), tmp_path)
    yield made
    stop_all([made.emulator])


def test_one_command_for_all_machines_says_what_comes_next(whole: Whole) -> None:
    dry = whole.run("--dry")
    assert dry.code == 0, dry
    assert dry.output.endswith("nothing was written\n")
    assert "spark2: would make user ops, without a password" in dry.output
    assert whole.workdir.writes() == []
    done = whole.run()
    assert done.code == 0, done
    assert "2 of 2 nodes ready" in done.output
    assert "crs812: ready" in done.output
    assert done.output.endswith("all machines are ready\n")
    assert '"' + "0" * 64 + '"' not in whole.operator.rack.read_text()
    assert whole.operator.by_key("spark2", "hostname") == "spark2\n"
    again = whole.run("--dry")
    assert (again.code, "would" in again.output) == (0, False), again


def test_a_node_that_fails_does_not_keep_the_switch(whole: Whole) -> None:
    whole.operator.nodes["spark1"].ask("mv /usr/bin/sudo /usr/bin/sudo.away")
    done = whole.run()
    assert done.code == 1
    assert "crs812: ready" in done.output
    assert "spark1: nvidia gets no root by sudo" in done.errors
    assert "all machines are ready" not in done.output


def test_a_switch_that_fails_is_said_after_the_nodes(whole: Whole) -> None:
    whole.workdir.sticker.write_text("wrong\n")
    done = whole.run()
    assert done.code == 1
    assert "2 of 2 nodes ready" in done.output
    assert "crs812: login as admin refused" in done.errors


def test_options_before_a_command_are_refused(tmp_path: Path) -> None:
    done = Done.of(forked_command.run(["bootstrap", "--as", "nvidia", "nodes"], {"HOME": str(tmp_path)}, 240))
    assert done.code == 1
    assert "options stand after nodes, not before it" in done.errors
