"""The switch on the screen of `sparkrack watch`: read from the emulated switch by the program of the server, exported
and collected by the real exporter and Prometheus."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from tests.emulator.test_switch_reader import Watched, unit, watched  # noqa: F401 - fixtures
from tests.unit.model.racks import SWITCH, changed
from tests.unit.roles.test_watch_switch_reader import READER
from tests.unit.roles.watch_server import Server, running, wait_for

LINE = re.compile(r"^crs812 +(.*)$", re.MULTILINE)
SERVER = "spark2"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("watch")) as found:
        yield found


def looked(server: Server, folder: Path, *words: str, section: str = f"{{server: {SERVER}}}") -> Result:
    """Look with the rack file of an operator, whose server is spark2."""
    file = folder / "rack.yaml"
    edits = (READER,) if section else ()
    file.write_text(changed(SWITCH, ("rack: two", f"rack: two\nwatch: {section or '{}'}"), *edits))
    arguments = ["watch", "--rack", str(file), "--url", server.url, "--once", *words]
    return CliRunner().invoke(sparkrack, arguments, catch_exceptions=False)


class Screen:
    """The switch, its reader, the exporter of the server, Prometheus and the operator."""

    def __init__(self, watched: Watched, server: Server) -> None:  # noqa: F811
        self.watched, self.server = watched, server
        self.file = server.metrics(SERVER) / "sparkrack-switch.prom"

    def read(self, **changed: Any) -> None:
        """Read the switch as the timer does once a minute."""
        done = self.watched.run(**changed)
        assert done.returncode == 0, done.stderr
        self.publish((self.watched.folder / "out.prom").read_text())

    def publish(self, text: str) -> None:
        """Put a file where the exporter reads it."""
        side = self.file.with_suffix(".new")
        side.write_text(text)
        side.replace(self.file)

    def row(self) -> dict[str, Any]:
        """The data of the switch."""
        (found,) = json.loads(looked(self.server, self.watched.folder, "--json").stdout)["switches"]
        return dict(found)

    def wait(self, what: str, happened: Callable[[dict[str, Any]], bool]) -> Result:
        """Wait until the data are so, and return the screen."""

        def seen() -> bool:
            """A server that is busy may not answer yet."""
            found = looked(self.server, self.watched.folder, "--json")
            return bool(found.stdout) and happened(json.loads(found.stdout)["switches"][0])

        wait_for(what, seen)
        return looked(self.server, self.watched.folder)


@pytest.fixture
def screen(watched: Watched, prometheus: Server) -> Screen:  # noqa: F811
    found = Screen(watched, prometheus)
    found.read()
    found.wait("a whole reading", lambda row: row["up"] and not row["unread"] and row["pauses"] is not None)
    return found


def test_a_healthy_switch_is_a_row(screen: Screen) -> None:
    ended = looked(screen.server, screen.watched.folder)
    (row,) = LINE.findall(ended.output)
    assert re.fullmatch(r"52 +4/4 +2/2 +2/2 +0 +0 +\d+ s ago *", row), row
    assert "crs812: legs with a link: 2 at 100G with FEC fec91\n" in ended.output
    assert " 0 unknown" in ended.output
    assert ended.exit_code in (0, 2)


def test_what_is_broken_is_seen(screen: Screen) -> None:
    """A leg, a fan and a supply; and frames that are dropped."""
    emulator = screen.watched.emulator
    emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 1})
    wait_for("the link goes", lambda: emulator.links()["qsfp56-dd-1-1"] == "no-link")
    screen.watched.sensor("fan2-speed", "0")
    screen.watched.sensor("psu2-state", "fail")
    screen.watched.sensor("cpu-temperature", "81.5")
    add = {"tx-drop-queue3-packet": 70_000, "rx-pause": 50_000}
    emulator.control({"op": "counters", "interface": "qsfp56-dd-1-3", "add": add})
    screen.read()
    ended = screen.wait("drops are counted", lambda row: bool(row["drops"]))
    (row,) = LINE.findall(ended.output)
    assert re.fullmatch(r"82 +3/4 +1/2 +1/2 +[1-9]\d* +[1-9]\d* +\d+ s ago *", row), row
    assert "crs812: no link: crs812/qsfp56-dd-1-1 to spark1/1\n" in ended.output
    assert "crs812: legs with a link: 1 at 100G with FEC fec91\n" in ended.output


def test_an_old_reading_has_no_values(screen: Screen) -> None:
    """The timer is stopped: its file stays, and the exporter goes on to export it."""
    text = screen.file.read_text()
    screen.publish(re.sub(r"(reading_timestamp_seconds\S+) \S+", rf"\1 {time.time() - 725:.0f}", text))
    ended = screen.wait("the reading is old", lambda row: (row["age"] or 0) > 700)
    (row,) = LINE.findall(ended.output)
    assert re.fullmatch(r"\? +\? +\? +\?/2 +\? +\? +7\d\d s ago *", row), row
    why = "the reading is 12 min old; see sparkrack-switch-reader.timer of spark2"
    assert f"crs812: unknown: {why}\n" in ended.output
    assert ended.exit_code == 1
    found = screen.row()
    assert found["reason"] == why
    assert not [key for key in ("temperature", "fans", "psus_ok", "drops", "pauses") if found[key] is not None]
    assert {leg["up"] for leg in found["legs"]} == {None}
    # What a script sees with --quiet.
    assert f"crs812: unknown: {why}\n" in looked(screen.server, screen.watched.folder, "--quiet").output


def test_a_switch_that_does_not_answer_is_silent(screen: Screen) -> None:
    screen.read(port=1)
    ended = screen.wait("it is silent", lambda row: row["up"] is False)
    assert "crs812: silent: it does not answer its reader: refused\n" in ended.output
    (row,) = LINE.findall(ended.output)
    assert re.fullmatch(r"\? +\? +\? +\?/2 +\? +\? +\d+ s ago *", row), row
    assert ended.exit_code == 2


def test_a_part_that_cannot_be_read_is_unknown(screen: Screen) -> None:
    screen.watched.emulator.control({"op": "fault", "kind": "trap", "match": "/interface/ethernet/monitor"})
    screen.read()
    ended = screen.wait("links are unread", lambda row: row["unread"] == ["links"])
    assert "crs812: cannot be read: links\n" in ended.output
    (row,) = LINE.findall(ended.output)
    assert re.match(r"52 +4/4 +2/2 +\?/2 ", row), row
    assert ended.exit_code == 1


def test_without_a_file_nothing_is_known(screen: Screen) -> None:
    screen.file.unlink()
    ended = screen.wait("there is no reading", lambda row: row["up"] is None and row["age"] is None)
    assert "crs812: unknown: there is no reading; see sparkrack-switch-reader.timer of spark2\n" in ended.output
    assert ended.exit_code == 1


def test_a_switch_that_is_not_to_be_read_is_not_unknown(screen: Screen) -> None:
    for section, why in (
        ("{switch: false}", "watch.switch is false"),
        ("{server: 10.77.0.50}", "the server of the watch is outside of the rack"),
        ("", "switches.crs812 has no reader"),
    ):
        ended = looked(screen.server, screen.watched.folder, section=section)
        (row,) = LINE.findall(ended.output)
        assert re.fullmatch(r"- +- +- +-/2 +- +- +- *", row), row
        assert f"crs812: not read: {why}\n" in ended.output
        assert " 0 unknown" in ended.output
        assert ended.exit_code in (0, 2)


def test_the_page_has_the_switch(screen: Screen) -> None:
    file = screen.watched.folder / "page.html"
    looked(screen.server, screen.watched.folder, "--html", str(file))
    hottest, fans = "<li><span>hottest, °C</span> 52</li>", "<li><span>fans turning/all</span> 4/4</li>"
    assert f'<h2>crs812: answers</h2>\n<ul class="facts">{hottest}{fans}' in file.read_text()
    assert "<li>crs812: legs with a link: 2 at 100G with FEC fec91</li>" in file.read_text()


def test_a_silent_server_is_the_reason(screen: Screen) -> None:
    """Last: its exporter does not come back."""
    screen.server.stop(SERVER)
    ended = screen.wait("its exporter is silent", lambda row: row["age"] is None)
    assert "crs812: unknown: the exporter of spark2, which reads it, is silent\n" in ended.output
