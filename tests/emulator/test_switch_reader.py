"""The program that reads a switch for Prometheus, against the emulated switch: what it writes for each fault of it."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from roles.watch import verify
from sparkrack.drift.findings import drift_of
from sparkrack.drift.prometheus import drift_metrics, drill_metrics
from sparkrack.status.drills import DrillLevel, DrillResult
from tests.emulator.emulator_process import Crs812Process, stop_all
from tests.emulator.rest_client import plain
from tests.unit.drift.plans import machine, plan
from tests.unit.roles.exported_series import REALLY_WRITTEN, firing, scrape_labels, scraped, written_by_a_node
from tests.unit.roles.healthy_watch import BLACKBOX, UNIT_EDIT, WIDE
from tests.unit.roles.test_watch_switch_reader import READER as SWITCH_READER
from tests.unit.roles.watch_tools import PROGRAMS, rack

PROGRAM = Path(__file__).parents[2] / "roles/watch/files/switch_reader.py"
READER = "sparkrack-reader"
LEGS = {"qsfp56-dd-1-1": "spark1/1", "qsfp56-dd-1-3": "spark2/1"}
PARTS = {"system", "temperatures", "fans", "supplies", "ports", "links"}
SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")


@dataclass
class Watched:
    """A switch with a reader that may only read, and the folder of the program."""

    emulator: Crs812Process
    folder: Path
    password: str

    def target(self, **changed: Any) -> dict[str, Any]:
        """The switch as the role declares it."""
        found = {
            "name": "crs812",
            "address": "127.0.0.1",
            "port": self.emulator.rest_port,
            "sha256": self.emulator.fingerprint,
            "user": READER,
            "legs": LEGS,
        }
        return {**found, **changed}

    def run(self, password: str | None = None, **changed: Any) -> subprocess.CompletedProcess[str]:
        """Run the program once."""
        (self.folder / "targets").write_text(json.dumps({"supplies": 2, "switches": [self.target(**changed)]}))
        (self.folder / "passwords").write_text(json.dumps({"crs812": password or self.password}))
        return read(self.folder)

    def series(self, password: str | None = None, **changed: Any) -> dict[str, float]:
        """The series that it writes, by name and labels without the name of the switch."""
        done = self.run(password, **changed)
        assert done.returncode == 0, done.stderr
        return parsed((self.folder / "out.prom").read_text())

    def sensor(self, name: str, value: str) -> None:
        """Give a sensor another value."""
        self.emulator.control({"op": "sensor", "name": name, "value": value})


def read(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [f"--{name}={folder / file}" for name, file in (("targets", "targets"), ("passwords", "passwords"))]
    command = [sys.executable, "-I", str(PROGRAM), "read", *words, f"--out={folder / 'out.prom'}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def parsed(text: str) -> dict[str, float]:
    """Fails for a line that is neither a comment nor a sample, and for a series that is there twice."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        labels = ",".join(one for one in match[2].split(",") if one != 'switch="crs812"')
        key = f"{match[1].removeprefix('sparkrack_switch_')}{{{labels}}}"
        assert key not in found, line
        found[key] = float(match[3])
    return found


def named(found: dict[str, float], name: str) -> dict[str, float]:
    """The series of one metric, by their labels."""
    return {key.partition("{")[2][:-1]: value for key, value in found.items() if key.startswith(f"{name}{{")}


def problem(found: dict[str, float]) -> str:
    """The reason for which the switch could not be read; it has no other value then, but for the time."""
    reasons = [labels for labels, value in named(found, "problem").items() if value]
    assert len(reasons) == 1, reasons
    assert found["up{}"] == 0
    assert {key.partition("{")[0] for key in found} == {
        "up",
        "problem",
        "reading_timestamp_seconds",
        "psus_expected",
    }
    assert abs(found["reading_timestamp_seconds{}"] - time.time()) < 60
    return reasons[0].partition('"')[2][:-1]


def unread(found: dict[str, float]) -> set[str]:
    """The parts of the answer that could not be read."""
    parts = {labels.partition('"')[2][:-1]: value for labels, value in named(found, "part_read").items()}
    assert parts.keys() == PARTS
    return {part for part, value in parts.items() if value == 0}


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Crs812Process, str]]:
    """One switch for all, with the rights that a run gives its reader."""
    emulator, password = Crs812Process(tmp_path_factory.mktemp("switch")).start(), secrets.token_urlsafe(12)
    web = plain(emulator)
    for path, body in (
        ("/user/group", {"name": READER, "policy": "read,rest-api"}),
        ("/user", {"name": READER, "group": READER, "password": password}),
    ):
        assert web.ask("PUT", path, body).status_code == 201
    for leg in LEGS:
        lane = {"auto-negotiation": "no", "speed": "100G-baseCR2", "fec-mode": "fec91"}
        (row,) = web.get("/interface/ethernet", **{"default-name": leg})
        assert web.ask("PATCH", f"/interface/ethernet/{row['.id']}", lane).status_code == 200
    number = next(row[".id"] for row in web.get("/ip/service", name="www-ssl"))
    (certificate, *_) = web.get("/certificate")
    body = {"disabled": "no", "certificate": certificate["name"]}
    assert web.ask("PATCH", f"/ip/service/{number}", body).status_code == 200
    yield emulator, password
    stop_all([emulator])


@pytest.fixture
def watched(unit: tuple[Crs812Process, str], tmp_path: Path) -> Iterator[Watched]:
    """The switch at rest, with both links up."""
    emulator, password = unit
    end = time.monotonic() + 60
    while {emulator.links()[leg] for leg in LEGS} != {"link-ok"}:
        assert time.monotonic() < end, emulator.links()
        time.sleep(0.05)
    yield Watched(emulator, tmp_path, password)
    emulator.control({"op": "heal"})
    for name, value in (("psu2-state", "ok"), ("fan2-speed", "4380"), ("cpu-temperature", "47")):
        emulator.control({"op": "sensor", "name": name, "value": value})
    emulator.control({"op": "cable", "do": "plug", "cage": "qsfp56-dd-1", "lane": 1})


def test_a_healthy_switch(watched: Watched) -> None:
    found = watched.series()
    assert found["up{}"] == 1
    assert set(named(found, "problem").values()) == {0}
    assert not unread(found)
    assert named(found, "info") == {'version="7.24.6 (long-term)",board="CRS812-8DS-2DQ-2DDQ"': 1}
    assert found["uptime_seconds{}"] >= 0
    assert named(found, "temperature_celsius") == {'sensor="cpu-temperature"': 47, 'sensor="switch-temperature"': 52}
    assert named(found, "fan_rpm") == {f'fan="fan{number}"': 4380 for number in (1, 2, 3, 4)}
    assert named(found, "psu_ok") == {'psu="psu1"': 1, 'psu="psu2"': 1}
    assert found["psus_expected{}"] == 2
    places = [f'leg="crs812/{leg}",to="{port}"' for leg, port in LEGS.items()]
    assert named(found, "leg_up") == dict.fromkeys(places, 1)
    assert named(found, "leg_bits_per_second") == dict.fromkeys(places, 1e11)
    assert named(found, "leg_fec") == {f'{place},mode="fec91"': 1 for place in places}
    for metric in ("leg_drops_total", "leg_errors_total", "leg_pause_frames_total"):
        assert {labels.rpartition(",")[0] for labels in named(found, metric)} == set(places)


def test_it_only_reads_and_no_other_user_is_used(watched: Watched) -> None:
    before, lines = watched.emulator.writes(), len(watched.emulator.log())
    watched.series()
    assert watched.emulator.writes() == before
    asked = [line for line in watched.emulator.log()[lines:] if "user" in line]
    assert {line["user"] for line in asked} <= {READER}


def test_counters_grow(watched: Watched) -> None:
    place = 'leg="crs812/qsfp56-dd-1-1",to="spark1/1"'
    before = watched.series()
    add = {"tx-drop-queue3-packet": 7, "rs-fec-uncorrected": 3, "rx-pause": 5}
    watched.emulator.control({"op": "counters", "interface": "qsfp56-dd-1-1", "add": add})
    after = watched.series()
    for series, more in (
        (f'leg_drops_total{{{place},counter="tx-drop-queue3-packet"}}', 7),
        (f'leg_errors_total{{{place},counter="rs-fec-uncorrected"}}', 3),
        (f'leg_pause_frames_total{{{place},direction="received"}}', 5),
    ):
        assert after[series] - before[series] == more


def test_an_unplugged_supply_a_dead_fan_and_heat(watched: Watched) -> None:
    watched.sensor("psu2-state", "fail")
    watched.sensor("fan2-speed", "0")
    watched.sensor("cpu-temperature", "81.5")
    found = watched.series()
    assert named(found, "psu_ok") == {'psu="psu1"': 1, 'psu="psu2"': 0}
    assert named(found, "fan_rpm")['fan="fan2"'] == 0
    assert named(found, "temperature_celsius")['sensor="cpu-temperature"'] == 81.5
    assert not unread(found)


def test_a_leg_without_a_link(watched: Watched) -> None:
    watched.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 1})
    end = time.monotonic() + 60
    while watched.emulator.links()["qsfp56-dd-1-1"] != "no-link":
        assert time.monotonic() < end
    found = watched.series()
    up = named(found, "leg_up")
    assert up['leg="crs812/qsfp56-dd-1-1",to="spark1/1"'] == 0
    assert 'leg="crs812/qsfp56-dd-1-1",to="spark1/1"' not in named(found, "leg_bits_per_second")
    assert list(named(found, "leg_fec")) == ['leg="crs812/qsfp56-dd-1-3",to="spark2/1",mode="fec91"']
    assert not unread(found)


def test_a_sensor_that_cannot_be_read_has_no_value(watched: Watched) -> None:
    """Neither the one of before nor a made-up one."""
    watched.series()
    watched.sensor("fan2-speed", "n/a")
    found = watched.series()
    assert 'fan="fan2"' not in named(found, "fan_rpm")
    assert len(named(found, "fan_rpm")) == 3
    assert unread(found) == {"fans"}


def test_a_switch_without_sensors_of_supplies_is_reported(watched: Watched) -> None:
    for name in ("psu1-state", "psu2-state"):
        watched.sensor(name, "")
    try:
        found = watched.series()
    finally:
        watched.sensor("psu1-state", "ok")
    assert not named(found, "psu_ok")
    assert unread(found) == {"supplies"}


def test_a_text_of_the_switch_stays_one_label(watched: Watched) -> None:
    watched.sensor("fan2-speed", '1"} 1\nsparkrack_switch_up{} 1')
    assert unread(watched.series()) == {"fans"}


@pytest.mark.parametrize(
    ("match", "parts", "gone"),
    [
        ("/system/health", {"temperatures", "fans", "supplies"}, ("temperature_celsius", "fan_rpm", "psu_ok")),
        ("/interface/ethernet/print", {"ports", "links"}, ("leg_up", "leg_drops_total")),
        ("/interface/ethernet/monitor", {"links"}, ("leg_up", "leg_bits_per_second", "leg_fec")),
    ],
)
@pytest.mark.parametrize("kind", ["trap", "garbage"])
def test_a_part_that_is_not_answered_has_no_values(
    watched: Watched, kind: str, match: str, parts: set[str], gone: tuple[str, ...]
) -> None:
    """Although the file of the reading before has them."""
    watched.series()
    watched.emulator.control({"op": "fault", "kind": kind, "match": match})
    found = watched.series()
    assert found["up{}"] == 1
    assert unread(found) == parts
    assert not [name for name in gone if named(found, name)]


def test_a_leg_that_the_switch_does_not_have(watched: Watched) -> None:
    found = watched.series(legs={**LEGS, "qsfp56-dd-9-1": "spark3/1"})
    assert unread(found) == {"ports", "links"}
    assert len(named(found, "leg_up")) == 2


def test_a_switch_that_dies_while_it_is_read_has_no_values(watched: Watched) -> None:
    watched.emulator.control({"op": "fault", "kind": "drop", "match": "/interface/ethernet/monitor"})
    assert problem(watched.series()) == "refused"


def test_a_wrong_password(watched: Watched) -> None:
    done = watched.run("wr0ng-passw0rd")
    assert problem(parsed((watched.folder / "out.prom").read_text())) == "login"
    assert f"crs812: login: login as {READER} refused" in done.stderr


def test_a_wrong_fingerprint_gets_no_password(watched: Watched) -> None:
    """Nothing is sent to it at all."""
    lines = len(watched.emulator.log())
    done = watched.run(sha256="ab" * 32)
    assert problem(parsed((watched.folder / "out.prom").read_text())) == "certificate"
    assert f"shows certificate {watched.emulator.fingerprint}, pinned is {'ab' * 32}" in done.stderr
    assert len(watched.emulator.log()) == lines


def test_a_port_where_nothing_listens(watched: Watched) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert problem(watched.series(port=free.getsockname()[1])) == "refused"


@contextmanager
def mute() -> Iterator[int]:
    """Something that takes connections and never answers; its port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_dead_switch_does_not_hide_another(watched: Watched) -> None:
    """Two at once: one takes the connection and never answers, the other is read whole."""
    with mute() as port:
        switches = [watched.target(name="dead", port=port), watched.target()]
        (watched.folder / "targets").write_text(json.dumps({"supplies": 1, "switches": switches}))
        (watched.folder / "passwords").write_text(json.dumps({"crs812": watched.password, "dead": "x"}))
        assert read(watched.folder).returncode == 0
    text = (watched.folder / "out.prom").read_text()
    assert 'sparkrack_switch_up{switch="dead"} 0.0' in text
    assert 'sparkrack_switch_problem{switch="dead",problem="unreachable"} 1.0' in text
    assert 'sparkrack_switch_up{switch="crs812"} 1.0' in text
    assert text.count('sparkrack_switch_leg_up{switch="crs812"') == 2


def test_the_password_is_shown_nowhere(watched: Watched) -> None:
    """Not in the arguments, the environment, the output, nor the file, whether it is right or wrong."""
    seen: list[bytes] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    words = (process / "cmdline").read_bytes()
                    if b"switch_reader.py" in words:
                        seen.append(words + (process / "environ").read_bytes())
                except OSError:
                    continue
            time.sleep(0.01)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        outputs = [watched.run(), watched.run("wr0ng-passw0rd"), watched.run(sha256="ab" * 32)]
    finally:
        done.set()
        looking.join()
    assert seen
    text = "".join(one.stdout + one.stderr for one in outputs) + (watched.folder / "out.prom").read_text()
    for password in (watched.password, "wr0ng-passw0rd"):
        assert password not in text
        assert not [one for one in seen if password.encode() in one]


@pytest.mark.parametrize(
    ("targets", "passwords", "line"),
    [
        ("{", "{}", "targets: not JSON"),
        ('{"supplies": 1, "switches": [{"name": "a"}]}', "{}", "do not fit: 'address'"),
        (None, "{}", "targets: No such file or directory"),
        ('{"supplies": 1, "switches": []}', "s3cret", "passwords: not JSON"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, targets: str | None, passwords: str, line: str) -> None:
    if targets is not None:
        (tmp_path / "targets").write_text(targets)
    (tmp_path / "passwords").write_text(passwords)
    done = read(tmp_path)
    assert done.returncode == 1
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "s3cret" not in done.stderr
    assert not (tmp_path / "out.prom").exists()


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A real node_exporter on loopback: the folder of its textfile collector, and its URL."""
    folder = tmp_path_factory.mktemp("textfiles")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    words = [f"--web.listen-address={place}", f"--collector.textfile.directory={folder}"]
    command = [
        str(PROGRAMS / "prometheus-node-exporter"),
        "--collector.disable-defaults",
        "--collector.textfile",
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield folder, f"http://{place}/metrics"
        process.kill()


def exported(url: str) -> str:
    """What the exporter shows now."""
    end = time.monotonic() + 60
    while True:
        try:
            return requests.get(url, timeout=60).text
        except requests.ConnectionError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_the_proof_takes_what_the_exporter_shows(watched: Watched, exporter: tuple[Path, str]) -> None:
    """The collector accepts the file, and the proof of the role finds nothing wrong; with a fault it names it."""
    folder, url = exporter
    target = folder / "sparkrack-switch.prom"
    for fault, wanted in (
        (None, []),
        ("psu2-state", []),  # a supply that has failed is the concern of an alert
        ("fan2-speed", ["crs812: its fans cannot be read"]),
    ):
        if fault:
            watched.sensor(fault, "fail")
        assert watched.run().returncode == 0
        assert publish(watched.folder / "out.prom", target).returncode == 0
        text = exported(url)
        assert "node_textfile_scrape_error 0" in text
        assert verify.reading_faults(text, "crs812", time.time()) == wanted
    assert verify.reading_faults(text, "crs804", time.time()) == ["crs804 has no reading"]
    assert "crs812 was read 5" in verify.reading_faults(text, "crs812", time.time() + 500)[0]
    watched.run("wr0ng-passw0rd")
    publish(watched.folder / "out.prom", target)
    assert verify.reading_faults(exported(url), "crs812", time.time()) == ["crs812 cannot be read: login"]


VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/models/qwen"} 3.0
vllm:num_requests_running{engine="1",model_name="/models/qwen"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="/models/qwen"} 12.0
vllm:num_requests_waiting{engine="1",model_name="/models/qwen"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="/models/qwen"} 0.97
vllm:kv_cache_usage_perc{engine="1",model_name="/models/qwen"} 0.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="/models/qwen"} 2.0
vllm:num_preemptions_total{engine="1",model_name="/models/qwen"} 0.0
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{engine="0",model_name="/models/qwen"} 1.7640e+09
vllm:num_preemptions_created{engine="1",model_name="/models/qwen"} 1.7640e+09
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="/models/qwen"} 8192.0
vllm:prompt_tokens_total{engine="1",model_name="/models/qwen"} 0.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="/models/qwen"} 640.0
vllm:generation_tokens_total{engine="1",model_name="/models/qwen"} 0.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="/models/qwen"} 12.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="/models/qwen"} 652.0
vllm:iteration_tokens_total_count{engine="0",model_name="/models/qwen"} 652.0
vllm:iteration_tokens_total_sum{engine="0",model_name="/models/qwen"} 8832.0
"""
"""As vLLM with two engines (data parallel) labels what it exports."""
RANKS = [f'engine_type="unified",model_name="small",moe_ep_rank="0",pp_rank="0",tp_rank="{rank}"' for rank in (0, 1)]
SGLANG = "".join(
    f"# TYPE sglang:{name} {kind}\n" + "".join(f"sglang:{name}{{{labels}{more}}} {value}\n" for labels in RANKS)
    for name, kind, value, more in (
        ("num_running_reqs", "gauge", "2.0", ""),
        ("num_queue_reqs", "gauge", "0.0", ""),
        ("token_usage", "gauge", "0.4", ""),
        ("num_used_tokens", "gauge", "4100.0", ""),
        ("prompt_tokens_total", "counter", "90.0", ""),
        ("generation_tokens_total", "counter", "70.0", ""),
        ("realtime_tokens_total", "counter", "160.0", ',mode="decode"'),
    )
)
"""As SGLang of two ranks does, where each exports its own."""


def test_no_rule_has_an_error_over_what_all_programs_write(
    watched: Watched, exporter: tuple[Path, str], tmp_path: Path
) -> None:
    """What the exporter of the server shows: files of recorder, node metrics, switch reader, and of what an operator's
    machine delivers; the same node stands for the other one. And what engines export, with the labels of their scrapes.
    """
    server, url = exporter
    found = rack("{server: spark1}", UNIT_EDIT, *WIDE, BLACKBOX, SWITCH_READER)
    files = written_by_a_node(tmp_path)

    def shown() -> str:
        text = exported(url)
        assert "node_textfile_scrape_error 0" in text, "the collector rejects one of the files"
        return "".join(f"{line}\n" for line in text.splitlines() if re.match(r"sparkrack_|# TYPE sparkrack_", line))

    for old in server.iterdir():  # of another test
        old.unlink()
    for file in files:
        (server / file.name).write_text(file.read_text())
    of_a_node = shown()
    assert watched.run().returncode == 0
    assert publish(watched.folder / "out.prom", server / "sparkrack-switch.prom").returncode == 0
    drift = drift_of(plan(machine("spark1"), machine("spark2"), made=datetime.now(UTC)))
    (server / "sparkrack.prom").write_text(drift_metrics(drift, "laptop"))
    for level in (DrillLevel.MARK, DrillLevel.RESET):
        drill = DrillResult(
            run="x", rack="two", node="spark1", level=level, made=datetime.now(UTC), passed=True, reason="r"
        )
        (server / f"sparkrack-drill-spark1-{level}.prom").write_text(drill_metrics([drill], "laptop"))
    now, (first, other) = time.time(), scrape_labels(found)
    real = {
        **scraped(shown(), first, now=now),
        **scraped(of_a_node, other, now=now),
        **scraped(VLLM, {"job": "vllm", "instance": "10.77.0.11:8000", "unit": "qwen", "node": "spark1"}, now=now),
        **scraped(SGLANG, {"job": "sglang", "instance": "10.77.0.12:8000", "unit": "small", "node": "spark2"}, now=now),
    }
    named = {name.partition("{")[0] for name in real}
    assert {"sparkrack_switch_leg_drops_total", "sparkrack_drift", "sparkrack_drill_passed"} <= named
    # Of the engines: no counter rises, and the cache of the one is full.
    assert firing(tmp_path, real, found) == REALLY_WRITTEN | {"EngineHangs", "KvCacheFull"}


def publish(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PROGRAM), "publish", str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_published_at_once_and_readable(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "sparkrack-switch.prom"
    source.write_text("a 1\n")
    before = os.umask(0o077)
    try:
        assert publish(source, target).returncode == 0
    finally:
        os.umask(before)
    assert target.read_text() == "a 1\n"
    assert target.stat().st_mode & 0o777 == 0o644
    assert {path.name for path in tmp_path.iterdir()} == {"source", target.name}


def test_without_a_reading_the_file_of_before_goes(tmp_path: Path) -> None:
    target = tmp_path / "sparkrack-switch.prom"
    target.write_text("a 1\n")
    assert publish(tmp_path / "none", target).returncode == 0
    assert not target.exists()
    assert publish(tmp_path / "none", target).returncode == 0


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large"])
def test_what_is_not_a_file_of_metrics_is_not_published(tmp_path: Path, kind: str) -> None:
    """The reader's own user could put a link there to a file that only root may read."""
    source, target, secret = tmp_path / "source", tmp_path / "sparkrack-switch.prom", tmp_path / "secret"
    secret.write_text("root's\n")
    target.write_text("a 1\n")
    match kind:
        case "link":
            source.symlink_to(secret)
        case "pipe":
            os.mkfifo(source)
        case "folder":
            source.mkdir()
        case _:
            source.write_bytes(b"#" * (2 << 20))
    done = publish(source, target)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert not target.exists()
