"""`sparkrack autopsy` of a node that is dead, and of one that is back; each source missing once."""

from __future__ import annotations

import json
import os
import tarfile
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from sparkrack.engine.subcommands import WITHIN
from tests.serving.serve_modules import serve_hang
from tests.unit.autopsy.nodes import BOOT, NEXT, Nodes, entry, sample
from tests.unit.model import serving_racks
from tests.unit.model.racks import SWITCH, changed

PANIC = "Kernel panic - not syncing: sysrq triggered crash"


class Rack:
    """A rack of two nodes; its switch does not answer."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "rack.yaml").write_text(changed(SWITCH, ("rack: two", "rack: two\nblackbox: {}")))
        self.nodes = Nodes(folder / "nodes", ("spark1", "spark2"))
        for name, value in self.nodes.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(WITHIN)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setattr("sparkrack.autopsy.collect.SwitchChecks", NoSwitch)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["autopsy", "spark1", "--rack", str(self.folder / "rack.yaml"), *words])

    def report(self, *words: str) -> dict[str, Any]:
        done = self.run("--json", *words)
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.exit_code == {"planned": 0, "unknown": 1}.get(found["verdict"], 2), done.output
        return found


class NoSwitch:
    """A switch that does not answer."""

    def __init__(self, *_: object) -> None:
        pass

    def ask(self, _sentence: object) -> None:
        from core.probes.protocol import UnknownError

        raise UnknownError("crs812 could not be read", "could not be read")

    def close(self) -> None:
        pass


class RestartedSwitch(NoSwitch):
    """A switch whose only leg went down 130 s ago."""

    links: Mapping[str, Mapping[str, str]] = {}
    uptime = ""

    def ask(self, sentence: Any) -> Any:
        match str(sentence[0]):
            case "/system/clock/print":
                return [{"date": "2026-11-25", "time": "01:00:10", "gmt-offset": "+00:00"}]
            case "/interface/print":
                leg = "qsfp56-dd-1-1"
                return [{"name": leg, "default-name": leg, "last-link-down-time": "2026-11-25 00:58:00"}]
            case "/log/print":
                return []
        return [{"uptime": self.uptime}]


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "nodes").mkdir()
    return Rack(tmp_path, monkeypatch)


def states(report: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["state"] for one in report["sources"]}


def test_a_node_that_was_shut_down_in_order(rack: Rack) -> None:
    at = time.time() - 200
    lines = [{"time": at - 1, "source": "systemd", "text": "Stopped docker.service."}]
    rack.nodes.evidence(
        "spark1",
        marker={"boot": BOOT, "time": at, "target": "reboot"},
        journal={"first": 1, "last": at, "lines": lines},
    )
    found = rack.report()
    assert (found["verdict"], found["confidence"], found["boot"], found["alive"]) == ("planned", "high", BOOT, True)
    assert found["units"] == []
    assert [one["text"] for one in found["timeline"]][-3:-1] == [
        "systemd: Stopped docker.service.",
        "all services are stopped, reboot",
    ]
    assert states(found)["boot evidence"] == "read"
    assert states(found)["samples at spark2"] == "absent"
    assert states(found)["switch crs812"] == "unknown"


@pytest.mark.parametrize(("uptime", "count"), [("1m", 0), ("1h", 1)])
def test_changes_before_the_start_of_the_switch_do_not_count(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, uptime: str, count: int
) -> None:
    monkeypatch.setattr(RestartedSwitch, "uptime", uptime)
    monkeypatch.setattr("sparkrack.autopsy.collect.SwitchChecks", RestartedSwitch)
    rack.nodes.die("spark1")
    (switch,) = [one for one in rack.report()["sources"] if one["name"].startswith("switch")]
    assert (switch["state"], switch["detail"].partition(" of ")[0]) == ("read", f"{count} changes"), switch


def test_a_dead_node_by_what_another_one_received(rack: Rack) -> None:
    """The clock of the node is 5 s ahead: the time of the received file tells by how much."""
    now = time.time()
    rack.nodes.die("spark1")
    ring = rack.nodes.write(
        "spark2", "peers/spark1.ring", "".join(f"{sample(now - 60 + 5 + n / 2)}\n" for n in range(60))
    )
    os.utime(ring, (now - 30.5, now - 30.5))
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 30:.3f} 0,77,5,-;{PANIC}\n")
    rack.nodes.write("spark2", "remote/remote-spark1.journal", f"{entry(now - 36, 'the last line', 'vllm')}\n")
    found = rack.report()
    assert (found["verdict"], found["alive"], found["boot"]) == ("panic", False, BOOT)
    assert found["signs"][0]["source"] == "netconsole"
    skews = {one["name"]: one["skew"] for one in found["sources"]}
    assert skews["samples at spark2"] == pytest.approx(5, abs=2)
    times = {one["text"]: one["at"] for one in found["timeline"]}
    last = next(at for text, at in times.items() if text.startswith("last sample: "))
    assert last < times[f"kernel: {PANIC}"], "the sample is older, by the clock of one machine"
    assert states(found)["node"] == "unknown"


def test_a_node_that_is_slow_has_the_right_clock_and_the_right_begin(rack: Rack) -> None:
    """A login that takes 5 s is not a difference of the clocks, and a ring that takes 5 s does not move the boot."""
    ssh, tool = rack.nodes.folder / "ssh", rack.nodes.folder / "bin/grep"
    ssh.write_text(ssh.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nsleep 5\n", 1))
    tool.write_text('#!/bin/sh\nsleep 5\nexec /usr/bin/grep "$@"\n')
    tool.chmod(0o755)
    lines = [{"time": 10.0, "source": "kernel", "text": "x"}]
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines})
    begin = time.time()
    found = rack.report()
    skews = {one["name"]: one["skew"] for one in found["sources"]}
    assert skews["node"] == pytest.approx(0, abs=2)
    began = next(one["at"] for one in found["timeline"] if one["text"] == "the present boot began")
    assert datetime.fromisoformat(began).timestamp() == pytest.approx(begin + 5 - 100, abs=4)


def without_clock(rack: Rack, node: str, answer: str) -> None:
    """Let `date` on this node do that."""
    tool = rack.nodes.folder / "bin/date"
    tool.write_text(f'#!/bin/sh\ncase "$NODE" in */{node}) {answer};; esac\nexec /usr/bin/date "$@"\n')
    tool.chmod(0o755)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("echo 'date: broken' >&2; exit 1", "date: broken"),
        ("echo midnight; exit 0", "`date` printed no time"),
        ("echo nan; exit 0", "`date` printed no time"),
    ],
)
def test_times_of_a_node_with_an_unknown_clock_are_not_used(rack: Rack, answer: str, why: str) -> None:
    """systemd froze 130 s before the boot by a clock that may be wrong: that dates nothing."""
    now = time.time()
    frozen = {"time": now - 230, "source": "systemd", "text": "Freezing execution."}
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": [frozen]})
    rack.nodes.write("spark1", "ring", f"{sample(now - 200)}\n")
    assert rack.report()["verdict"] == "watchdog"
    without_clock(rack, "spark1", answer)
    found = rack.report()
    assert (found["verdict"], found["last_sign"], found["boot"]) == ("unknown", None, BOOT)
    assert [one["text"] for one in found["timeline"]] == ["the present boot began"]
    sources = {one["name"]: one for one in found["sources"]}
    assert sources["node"]["detail"] == f"answers; its clock is unknown ({why}), so its times are not used"
    assert [sources[name]["skew"] for name in ("node", "boot evidence", "samples of the node")] == [None] * 3
    assert found["remarks"] == [
        "the clock of spark1 is unknown: the times that it wrote are not used, so the verdict rests on fewer signs"
    ]
    assert f"node: answers; its clock is unknown ({why})" in rack.run().output


@pytest.mark.parametrize("wrong", [-3600, 3600])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_clock_that_was_wrong_in_the_boot_that_ended(rack: Rack, wrong: int, stamped: bool) -> None:
    """It was set since. systemd froze 130 s before the present boot began, as the stamp of the receiver shows."""
    now = time.time()
    frozen = {"time": now - 230 + wrong, "source": "systemd", "text": "Freezing execution."}
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": [frozen]})
    rack.nodes.write("spark1", "ring", f"{sample(now - 200 + wrong)}\n")
    if stamped:
        ends = f"{'e' * 32} 5 6\n{BOOT} {now - 200 + wrong:.3f} {now - 200:.3f}\n"
        rack.nodes.write("spark2", "peers/spark1.ends", ends)
    found = rack.report()
    sources = {one["name"]: one for one in found["sources"]}
    if stamped:
        assert found["verdict"] == "watchdog"
        assert sources["clock of the boot that ended at spark2"]["skew"] == pytest.approx(wrong, abs=2)
        assert datetime.fromisoformat(found["last_sign"]).timestamp() == pytest.approx(now - 200, abs=2)
    else:
        assert found["verdict"] == "unknown"
        assert (found["last_sign"] is None) is (wrong > 0)
        assert ("clock of the boot that ended" in sources) is (wrong > 0)


def test_a_mark_at_an_unknown_time_is_not_a_proof(rack: Rack) -> None:
    rack.nodes.evidence("spark1", marker={"boot": BOOT, "time": time.time() - 200, "target": "reboot"})
    without_clock(rack, "spark1", "exit 1")
    found = rack.report()
    assert (found["verdict"], found["confidence"]) == ("planned", "medium")
    assert not found["signs"][0]["proof"]


@pytest.mark.parametrize(("remote", "confidence"), [("plain", "medium"), ("tls", "high")])
def test_a_journal_that_another_host_can_have_sent_is_not_a_proof(rack: Rack, remote: str, confidence: str) -> None:
    declared = ("rack: two", f"rack: two\nblackbox: {{remote: {remote}}}")
    (rack.folder / "rack.yaml").write_text(changed(SWITCH, declared))
    rack.nodes.die("spark1")
    rack.nodes.write("spark2", "remote/remote-spark1.journal", f"{entry(time.time() - 100, PANIC)}\n")
    found = rack.report()
    assert (found["verdict"], found["confidence"]) == ("panic", confidence)


def test_times_of_a_receiver_with_an_unknown_clock_are_not_used(rack: Rack) -> None:
    """Lines of netconsole do not name their boot, so without a time they are of none."""
    now = time.time()
    lines = [{"time": now - 200, "source": "vllm", "text": "x"}]
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines})
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 190:.3f} {PANIC}\n")
    ring = rack.nodes.write("spark2", "peers/spark1.ring", f"{sample(now - 195)}\n")
    os.utime(ring, (now - 195, now - 195))
    assert rack.report()["verdict"] == "panic"
    without_clock(rack, "spark2", "exit 1")
    found = rack.report()
    assert found["verdict"] == "unknown"
    sources = {one["name"]: one for one in found["sources"]}
    for name, count in (("netconsole", "1 lines"), ("samples", "1 samples")):
        one = sources[f"{name} at spark2"]
        wanted = f"{count}; its clock is unknown (exit 1), so its times are not used"
        assert (one["detail"], one["skew"]) == (wanted, None)
    assert [remark.partition(":")[0] for remark in found["remarks"]] == ["the clock of spark2 is unknown"]


def test_a_panic_of_the_boot_before_the_one_that_ended_does_not_count(rack: Rack) -> None:
    now = time.time()
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 900:.3f} {PANIC}\n")
    rack.nodes.write("spark1", f"boots/{BOOT}/evidence.json", f'{{\n "began": {now - 600}\n}}\n')
    lines = [{"time": now - 200, "source": "kernel", "text": "x"}]
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines})
    assert rack.report()["verdict"] == "unknown"
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 190:.3f} {PANIC}\n")
    assert rack.report()["verdict"] == "panic"


@pytest.mark.parametrize("witness", ["samples", "journal"])
def test_a_panic_before_the_boot_of_a_dead_node_does_not_count(rack: Rack, witness: str) -> None:
    """A dead node does not say when its boot began; what another node received of both boots does."""
    now, before = time.time(), "e" * 32
    rack.nodes.die("spark1")
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 300:.3f} {PANIC}\n")
    boots = ((now - 301, before), (now - 200, BOOT), (now - 100, BOOT))
    if witness == "samples":
        text = "".join(f"{sample(at, boot)}\n" for at, boot in boots)
        os.utime(rack.nodes.write("spark2", "peers/spark1.ring", text), (now - 100, now - 100))
    else:
        text = "".join(f"{entry(at, 'x', 'vllm', boot)}\n" for at, boot in boots)
        rack.nodes.write("spark2", "remote/remote-spark1.journal", text)
    found = rack.report()
    assert (found["verdict"], found["boot"]) != ("panic", BOOT), found
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 99:.3f} {PANIC}\n")
    assert rack.report()["verdict"] == "panic"


class CountingSwitch(RestartedSwitch):
    """A switch whose leg has a link, and receives so many frames between two readings."""

    uptime = "1h"
    links: Mapping[str, Mapping[str, str]] = MappingProxyType({"qsfp56-dd-1-1": {"status": "link-ok"}})
    frames = 0
    readings = 0

    def ask(self, sentence: Any) -> Any:
        if sentence[0] != "/interface/ethernet/print":
            return super().ask(sentence)
        type(self).readings += 1
        counter = {"rx-packet": str(self.frames * self.readings), "rx-pause": "0"}
        return [{"default-name": "qsfp56-dd-1-1", **counter}]


@pytest.mark.parametrize(
    ("echo", "frames", "verdict", "reason"),
    [
        ("0", 0, "unknown", "192.168.100.1, 192.168.101.1 answer spark2 on the fabric: it may be alive"),
        ("1", 7, "unknown", "the switch receives frames from qsfp56-dd-1-1: it may be alive"),
        ("1", 0, "freeze", "also the switch receives no frame from qsfp56-dd-1-1, "),
        ("2", 0, "freeze", "also the switch receives no frame from qsfp56-dd-1-1"),
    ],
)
def test_a_node_that_is_silent_on_its_management_link_is_asked_for_on_other_wires(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, echo: str, frames: int, verdict: str, reason: str
) -> None:
    monkeypatch.setattr("sparkrack.autopsy.collect.SwitchChecks", CountingSwitch)
    monkeypatch.setattr("sparkrack.autopsy.collect.COUNTED_SECONDS", 0)
    monkeypatch.setattr(CountingSwitch, "frames", frames)
    rack.nodes.die("spark1")
    rack.nodes.write("spark2", "ping", f"{echo}\n")
    at = time.time() - 300
    os.utime(rack.nodes.write("spark2", "peers/spark1.ring", f"{sample(at)}\n"), (at, at))
    found = rack.report()
    assert (found["verdict"], found["confidence"]) == (verdict, "medium" if verdict == "freeze" else None)
    assert reason in found["reason"]
    states = {one["name"]: one["state"] for one in found["sources"]}
    assert states["fabric from spark2"] == ("unknown" if echo == "2" else "read")


def test_a_node_that_answers_is_not_asked_for_on_other_wires(rack: Rack) -> None:
    rack.nodes.evidence("spark1")
    assert not [one for one in rack.report()["sources"] if one["name"].startswith("fabric")]


def test_nothing_answers(rack: Rack) -> None:
    rack.nodes.die("spark1")
    rack.nodes.die("spark2")
    found = rack.report()
    assert (found["verdict"], found["confidence"], found["timeline"]) == ("unknown", None, [])
    assert set(states(found).values()) == {"unknown"}
    text = rack.run().output
    assert "node: unknown: does not answer: ssh: connect to host spark1 port 22: No route to host" in text
    assert "spark1: unknown: no source has a sign of life" in text


def test_a_node_without_the_role_has_its_journal(rack: Rack) -> None:
    at = time.time() - 200
    reached = entry(at, "Reached target reboot.target - System Reboot.", "systemd")
    rack.nodes.write("spark1", "journal-before", f"{entry(at - 1, 'x')}\n{reached}\n")
    found = rack.report()
    assert (found["verdict"], found["boot"]) == ("planned", BOOT)
    assert (states(found)["boot evidence"], states(found)["journal"]) == ("absent", "read")


def test_evidence_that_is_damaged_is_unknown(rack: Rack) -> None:
    rack.nodes.write("spark1", f"boots/{NEXT}/evidence.json", '{"schema": 1}')
    found = rack.report()
    assert found["verdict"] == "unknown"
    assert states(found)["boot evidence"] == "unknown"


@pytest.mark.parametrize(("boot", "which"), [(BOOT, "in the boot that ended"), (NEXT, "in the present boot")])
def test_the_evidence_of_a_hang_is_found_and_dates_its_own_boot_only(rack: Rack, boot: str, which: str) -> None:
    """As serve_hang.py writes it, with the boot ID as the kernel prints it."""
    dashed = "-".join((boot[:8], boot[8:12], boot[12:16], boot[16:20], boot[20:]))
    file = rack.nodes.write("spark1", "serve/qwen.hang.json", "")
    cgroups = str(rack.folder / "nodes/spark1/run")
    words = ["qwen", "spark1", str(file), "--seconds=0.3", f"--boot={dashed}", f"--cgroups={cgroups}"]
    assert serve_hang.main(words) == 0
    rack.nodes.write("spark1", "serve/other.hang.json", "no JSON\n")
    rack.nodes.evidence("spark1")
    found = rack.report()
    (detail,) = [one["detail"] for one in found["sources"] if one["name"] == "hang of unit qwen"]
    assert detail == f"unit qwen hung {which}: 0 processes; /var/lib/sparkrack/serve/qwen.hang.json"
    shown = [one["text"] for one in found["timeline"] if one["source"] == "hangs of units"]
    assert shown == ([f"unit qwen hung {which}: 0 processes"] if boot == BOOT else [])
    out = rack.folder / "out"
    rack.run("--collect", str(out))
    (path,) = out.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        (kept,) = [archive.extractfile(entry) for entry in archive if entry.name.endswith("/hangs.jsonl")]
        assert kept
        assert b'"unit": "qwen"' in kept.read()


def test_what_is_printed(rack: Rack) -> None:
    lines = [{"time": time.time() - 200, "source": "x\x1b[2J", "text": "token=hf_abcdefghijklmnop \x07"}]
    rack.nodes.evidence("spark1", pstore=[{"text": PANIC}], journal={"first": 1, "last": 2, "lines": lines})
    done = rack.run()
    assert done.exit_code == 2
    assert "\x1b" not in done.output
    assert "hf_abcdef" not in done.output
    assert "spark1: panic (high confidence): the kernel panicked: sysrq triggered crash; docs/runbooks/" in done.output
    assert done.output.splitlines()[-1].startswith("Next: sparkrack status")
    quiet = rack.run("--quiet")
    assert len(quiet.stdout.splitlines()) == 1


def test_all_ranks_of_a_unit_are_to_be_rebooted(rack: Rack) -> None:
    text = serving_racks.text({"qwen": serving_racks.unit()}, blackbox={})
    (rack.folder / "rack.yaml").write_text(text.replace("n0", "spark1").replace("n1", "spark2"))
    rack.nodes.evidence("spark1", pstore=[{"text": PANIC}])
    done = rack.run()
    wanted = "unit qwen spans spark1, spark2: reboot spark1, spark2 before it starts again, all of them"
    assert wanted in done.output
    assert "Next: sparkrack reboot --limit spark1 --limit spark2" in done.output
    rack.nodes.evidence("spark1", marker={"boot": BOOT, "time": time.time() - 200, "target": None})
    assert "before it starts again" not in rack.run().output


def test_no_rank_is_to_be_rebooted_for_a_node_that_may_be_alive(rack: Rack) -> None:
    text = serving_racks.text({"qwen": serving_racks.unit()}, blackbox={})
    (rack.folder / "rack.yaml").write_text(text.replace("n0", "spark1").replace("n1", "spark2"))
    rack.nodes.die("spark1")
    rack.nodes.write("spark2", "ping", "0\n")
    rack.nodes.write("spark2", "remote/remote-spark1.journal", f"{entry(time.time() - 300, 'x', 'vllm')}\n")
    found = rack.report()
    assert "it may be alive" in found["reason"]
    assert found["units"] == []
    rack.nodes.write("spark2", "ping", "1\n")
    assert rack.report()["units"] == [{"unit": "qwen", "nodes": ["spark1", "spark2"]}]


def test_the_archive(rack: Rack) -> None:
    rack.nodes.evidence("spark1", pstore=[{"text": PANIC}], unread={"nvme": "password=canary123"})
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{time.time() - 190:.3f} x\n")
    out = rack.folder / "out"
    assert rack.run("--collect", str(out)).exit_code == 2
    (path,) = out.glob("sparkrack-autopsy-two-spark1-*.tar.gz")
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        files = {
            entry.name.partition("/")[2]: file.read().decode()
            for entry in archive
            if (file := archive.extractfile(entry)) is not None
        }
    assert {"manifest.json", "autopsy.json", "autopsy.txt", "nodes/spark1/evidence.json"} <= set(files)
    assert "nodes/spark2/of-spark1/console.txt" in files
    assert "nodes/spark1/nvidia-bug-report.log" not in files
    assert not [name for name, text in files.items() if "canary123" in text]
    manifest = json.loads(files["manifest.json"])
    assert {one["path"] for one in manifest["files"]} == set(files) - {"manifest.json"}


def test_an_archive_of_a_dead_node(rack: Rack) -> None:
    rack.nodes.die("spark1")
    out = rack.folder / "out"
    assert rack.run("--collect", str(out)).exit_code == 1
    (path,) = out.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        (manifest,) = [archive.extractfile(entry) for entry in archive if entry.name.endswith("manifest.json")]
        assert manifest
        hosts = json.loads(manifest.read())["hosts"]
    assert [(host["name"], host["answered"]) for host in hosts] == [("spark1", False), ("spark2", True)]


def test_a_name_that_is_not_a_node(rack: Rack) -> None:
    done = CliRunner().invoke(sparkrack, ["autopsy", "crs812", "--rack", str(rack.folder / "rack.yaml")])
    assert done.exit_code == 1
    assert "crs812: not a node; there are spark1, spark2" in done.output
