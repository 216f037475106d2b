"""What reads the switches, as the role installs it: where, what is written, what is found drifted and repaired."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.model import Rack
from core.model.errors import ConfigError
from core.model.secrets import SecretRef
from core.ops.host_facts import HostReading
from core.ops.operation import Changeset
from roles.watch import apply, notifications, rules, switch_reader
from roles.watch.facts import (
    METRICS_FILES,
    MODES,
    NOTIFICATIONS,
    OVERRIDES,
    OWN,
    PASSWORDS,
    PATHS,
    UNITS,
    FactsAndSecret,
    WatchFacts,
)
from tests import generated
from tests.unit.roles.test_watch_server import NONE, RUNNING, answer, texts
from tests.unit.roles.watch_tools import rack, written

PROGRAM = Path(__file__).parents[3] / "roles/watch/files/switch_reader.py"
READINGS = "tests/cases/watch/switch_reader.md"
READER = ("    mtu: 9000\n    l2mtu", "    reader: {password: {env: READER}}\n    mtu: 9000\n    l2mtu")
SECRET = "s3cret-0f-the-reader"
VALUES = {SecretRef(env="READER"): SECRET}
PACKAGES = dict.fromkeys(("prometheus-node-exporter", "prometheus", "prometheus-alertmanager"), RUNNING)


def read_rack(section: str = "{server: spark1}") -> Rack:
    """Two nodes behind a switch with a reader."""
    return rack(section, READER)


@dataclass
class Node:
    """The server of a rack, which has all as declared but for what differs."""

    found: Rack
    name: str = "spark1"
    timer: str = "active enabled loaded"
    password: str = SECRET
    passwords: str = "600 root:root"
    permissions: str = "root:root"

    def facts(self, changed: dict[str, bytes | None] | None = None) -> FactsAndSecret:
        """What is read of it; `changed`: files with another content."""
        files: dict[str, bytes | None] = dict.fromkeys(PATHS)
        # A server has the files of its programs.
        files |= {path: b"" for path in PATHS if path not in switch_reader.FILES}
        made = switch_reader.files(self.found)
        files |= {file.path: file.content for file in made} | (changed or {})
        modes = "".join(f"{file.mode} {self.permissions} {file.path}\n" for file in made)
        active, enabled, load = self.timer.split()
        digest = hashlib.sha256(switch_reader.passwords_text(self.found, {SecretRef(env="READER"): self.password}))
        texts = {
            UNITS: answer(PACKAGES),
            MODES: modes,
            NOTIFICATIONS: "",
            OWN: (
                "".join(f"Id=sparkrack-node-metrics.{kind}\n{NONE}" for kind in ("service", "timer"))
                + "Id=sparkrack-switch-reader.service\nLoadState=loaded\nActiveState=inactive\nNeedDaemonReload=no\n\n"
                f"Id=sparkrack-switch-reader.timer\nActiveState={active}\nUnitFileState={enabled}\nLoadState={load}\n"
                "NeedDaemonReload=no\n"
            ),
            PASSWORDS: f"{self.passwords} {digest.hexdigest()} {switch_reader.PASSWORDS}\n" if self.passwords else "",
            OVERRIDES: "",
            METRICS_FILES: "",
        }
        reading = HostReading({**files, **{key: text.encode() for key, text in texts.items()}}, {})
        facts = WatchFacts(reading, self.found, self.found.nodes[self.name])
        reads = facts.serves and switch_reader.switches(self.found)
        return FactsAndSecret(facts, switch_reader.passwords_text(self.found, VALUES) if reads else None)


def changeset(here: FactsAndSecret) -> Changeset:
    return apply.run_switch_reader.changeset(here)


def messages(found: Changeset) -> list[str]:
    return [event.message for event in found.events]


def test_a_server_as_declared() -> None:
    assert changeset(Node(read_rack()).facts()).in_sync_reason == "the switches are read every minute"


def test_a_fresh_server() -> None:
    node = Node(read_rack(), timer="inactive not-found not-found", passwords="")
    found = changeset(node.facts(dict.fromkeys(switch_reader.FILES)))
    assert messages(found) == [
        *(f"create {path}" for path in switch_reader.FILES),
        f"write {switch_reader.PASSWORDS}",
        "enable sparkrack-switch-reader.timer",
        "start sparkrack-switch-reader.timer",
    ]
    sent = texts(found)
    assert sent[-1] == (
        "systemctl --no-reload enable --quiet sparkrack-switch-reader.timer; systemctl daemon-reload; "
        "systemctl restart sparkrack-switch-reader.timer; systemctl start sparkrack-switch-reader.service; "
        "rm -f /run/sparkrack/watch-switch-reader.pending"
    )
    # Of root, and for no other.
    assert 'chown root:root "$new"; chmod 600 "$new"; ' in sent[-2]
    assert sent[-2].endswith(f"{switch_reader.PASSWORDS}; sync {switch_reader.FOLDER}")


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ({"password": "an0ther"}, [f"rewrite {switch_reader.PASSWORDS}"]),
        ({"passwords": "644 root:root"}, [f"rewrite {switch_reader.PASSWORDS}"]),
        ({"passwords": "600 ops:ops"}, [f"rewrite {switch_reader.PASSWORDS}"]),
        ({"passwords": ""}, [f"write {switch_reader.PASSWORDS}"]),
        ({"permissions": "ops:ops"}, [f"{path}: owner and mode are put right" for path in switch_reader.FILES]),
    ],
)
def test_what_drifted_is_repaired(node: dict[str, str], wanted: list[str]) -> None:
    found = changeset(Node(read_rack(), **node).facts())
    assert messages(found)[: len(wanted)] == wanted
    assert "systemctl start sparkrack-switch-reader.service" in texts(found)[-1]


def test_the_password_is_never_shown() -> None:
    """Neither its text nor its hash, in events and commands; the file's content goes by standard input."""
    found = changeset(Node(read_rack(), password="an0ther").facts())
    shown = repr(found.events) + "".join(texts(found))
    digest = hashlib.sha256(switch_reader.passwords_text(read_rack(), VALUES)).hexdigest()
    for secret in (SECRET, "an0ther", digest):
        assert secret not in shown
    plain = b"".join(file.content for file in switch_reader.files(read_rack()))
    assert SECRET.encode() not in plain


@pytest.mark.parametrize(
    ("section", "name"), [("{server: spark1}", "spark2"), ("{server: spark1, switch: false}", "spark1")]
)
def test_a_node_that_no_longer_reads(section: str, name: str) -> None:
    found = changeset(Node(read_rack(section), name).facts())
    assert messages(found) == ["stop and remove sparkrack-switch-reader.timer: this node reads no switch"]
    _, sent = texts(found)
    for path in (*switch_reader.FILES, switch_reader.PASSWORDS, switch_reader.METRICS):
        assert path in sent


def test_the_files_of_a_rack() -> None:
    program, targets, service, timer = switch_reader.files(read_rack("{server: spark1, psus: 2}"))
    assert program.mode == "755"
    assert json.loads(targets.content) == {
        "supplies": 2,
        "switches": [
            {
                "name": "crs812",
                "address": "10.77.0.2",
                "port": 443,
                "sha256": "0" * 64,
                "user": "sparkrack-reader",
                "legs": {"qsfp56-dd-1-1": "spark1/1", "qsfp56-dd-1-3": "spark2/1"},
            }
        ],
    }
    assert b"DynamicUser=yes" in service.content
    assert b"OnCalendar=minutely" in timer.content


@pytest.mark.parametrize(
    ("section", "edits", "reads"),
    [
        ("{}", (READER,), True),
        ("{switch: true}", (READER,), True),
        ("{switch: false}", (READER,), False),
        ("{}", (), False),
        ("{server: 10.77.0.50}", (READER,), False),
    ],
)
def test_where_the_switches_are_read(section: str, edits: tuple[tuple[str, str], ...], reads: bool) -> None:
    """Alerts and inhibitions come with it: without its series they would fire, or silence others."""
    found = rack(section, *edits)
    assert bool(switch_reader.switches(found)) == reads
    assert ("SwitchReaderStopped" in rules.alert_names(found)) == reads
    assert (b"SwitchSilent" in notifications.alertmanager_text(found, {})) == reads


@pytest.mark.parametrize(
    ("section", "edits", "line"),
    [
        ("{switch: true}", (), "watch.switch: no switch has a reader; write switches.NAME.reader, or write false"),
        (
            "{switch: true, server: 10.77.0.50}",
            (READER,),
            "watch.switch: needs a server in the rack, which reads the switches; name a node at watch.server",
        ),
        ("{psus: 3}", (), "watch.psus: "),
        ("{switch: yes}", (), "watch.switch: "),
    ],
)
def test_what_is_refused(section: str, edits: tuple[tuple[str, str], ...], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rack(section, *edits)
    assert line in str(refused.value)


def test_the_links_of_a_switch_that_is_gone_are_silenced(tmp_path: Path) -> None:
    """Which alerts Alertmanager silences then: test_watch_end_to_end.py."""
    (rule,) = switch_reader.inhibitions(read_rack())
    assert rule["source_matchers"] == ['alertname="SwitchSilent"', 'problem="unreachable"', 'switch="crs812"']
    assert rule["target_matchers"] == ['alertname=~"Link.+"', 'node=~"spark1|spark2"']
    written(tmp_path, read_rack())
    assert 'node=~"spark1|spark2"' in (tmp_path / "sparkrack-alertmanager.yml").read_text()


def test_the_unit_is_what_systemd_takes(tmp_path: Path) -> None:
    for file in switch_reader.files(read_rack())[2:]:
        (tmp_path / Path(file.path).name).write_bytes(file.content)
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / switch_reader.TIMER)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60)
    assert not [line for line in done.stderr.splitlines() if "sparkrack-switch-reader" in line], done.stderr


@pytest.mark.parametrize(
    ("link", "wanted"),
    [
        (
            {"status": "link-ok", "rate": "100Gbps", "fec": "fec91"},
            ["up 1.0", "bits_per_second 100000000000.0", "fec 1.0"],
        ),
        ({"status": "link-ok", "rate": "10Gbps"}, ["up 1.0", "bits_per_second 10000000000.0"]),
        ({"status": "link-ok", "fec": "off"}, ["up 1.0", "fec 1.0"]),
        ({"status": "no-link", "rate": "100Gbps", "fec": "fec91"}, ["up 0.0"]),
        ({"status": "unknown", "rate": "100Gbps", "fec": "fec91"}, []),
    ],
)
def test_rate_and_fec_are_those_of_a_link_that_is_up(link: dict[str, str], wanted: list[str]) -> None:
    names: dict[str, Any] = {"__name__": "switch_reader"}
    exec(compile(PROGRAM.read_text(), str(PROGRAM), "exec"), names)  # noqa: S102
    port = {".id": "*1", "default-name": "qsfp56-dd-1-1", "name": "to-spark1"}
    connection = SimpleNamespace(get=lambda *_: [port], monitor=lambda *_: [{"name": "to-spark1", **link}])
    metrics = names["Metrics"]()
    names["_add_port_metrics"](metrics, {"name": "crs812", "legs": {"qsfp56-dd-1-1": "spark1/1"}}, connection)
    found = re.findall(r"^sparkrack_switch_leg_(up|bits_per_second|fec)\{.*\} (\S+)$", metrics.text(), re.MULTILINE)
    assert [" ".join(one) for one in found] == wanted


@pytest.fixture
def reader() -> dict[str, Any]:
    """The names of the program."""
    names: dict[str, Any] = {"__name__": "switch_reader"}
    exec(compile(PROGRAM.read_text(), str(PROGRAM), "exec"), names)  # noqa: S102
    return names


TARGET: dict[str, Any] = {
    "name": "crs812",
    "supplies": 2,
    "legs": {"qsfp56-dd-1-1": "spark1/1", "qsfp56-dd-1-3": "spark2/0"},
    "address": "127.0.0.1",
    "port": 1,
    "sha256": "0" * 64,
    "user": "watcher",
}
ANSWERS: dict[str, list[dict[str, str]]] = {
    "/system/resource": [{"uptime": "1w2d3h4m5s", "version": '7.24 "x"\\', "board-name": "CRS812\x1b" + "x" * 90}],
    "/system/health": [
        {"name": "cpu-temperature", "value": "47"},
        {"name": "board-temperature1", "value": "-1.5"},
        {"name": "fan1-speed", "value": "3900"},
        {"name": "fan-speed", "value": "n/a"},
        {"name": "psu1-state", "value": "ok"},
        {"name": "psu2-state", "value": "fail"},
        {"name": "fan1-speeds", "value": "unknown"},
    ],
    "/interface/ethernet": [
        {
            ".id": "*1",
            "default-name": "qsfp56-dd-1-1",
            "name": "to-spark1",
            "rx-drop": "1",
            "tx-drop": "x",
            "tx-drop-queue7-packet": "8",
            "rx-fcs-error": "9",
            "rx-pause": "10",
            "tx-pause": "11",
            "rs-fec-uncorrected": "12",
            "rx-align-error": "",
        },
        {".id": "*2", "default-name": "qsfp56-dd-1-3", "name": "to-spark2", "tx-drop-packet": "0"},
        {".id": "*3", "default-name": "qsfp56-dd-1-5", "name": "other", "rx-drop": "5"},
    ],
    "monitor *1,*2": [
        {"name": "to-spark1", "status": "link-ok", "rate": "100Gbps", "fec": "fec91"},
        {"name": "to-spark2", "status": "no-link"},
        {"name": "other", "status": "link-ok"},
    ],
}
"""What the menus of a switch answer."""
PROBLEMS: dict[str, dict[str, Any]] = {
    "a healthy switch": {},
    "a switch that refuses the login": {"/system/resource": ("login", "login as watcher refused")},
    "sensors that cannot be used": {"/system/health": ("answer", "/system/health: HTTP 500")},
    "a switch that is gone in the middle": {"/interface/ethernet": ("unreachable", "no answer: timed out")},
    "links that cannot be used": {"monitor *1,*2": ("answer", "/interface/ethernet/monitor: HTTP 400")},
    "no resource": {"/system/resource": []},
    "two resources": {"/system/resource": ANSWERS["/system/resource"] * 2},
    "no version": {"/system/resource": [{"uptime": "5s"}]},
    "no uptime": {"/system/resource": [{"uptime": "soon", "version": "7"}]},
    "no sensor": {"/system/health": []},
    "a sensor of another kind": {"/system/health": [{"name": "poe-out-consumption", "value": "1.5"}]},
    "more sensors than are read": {
        "/system/health": [{"name": f"fan{number}-speed", "value": str(number)} for number in range(66)]
    },
    "one port and no counter of drops": {
        "/interface/ethernet": [{".id": "*1", "default-name": "qsfp56-dd-1-1", "name": "x", "rx-pause": "1"}],
        "monitor *1": [{"name": "x", "status": "unknown"}],
    },
    "ports without an ID": {"/interface/ethernet": [{"default-name": "qsfp56-dd-1-1", "rx-drop": "1"}]},
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_a_switch_answers_as_metrics(
    reader: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the healthy switch as a whole; of the others what differs from it."""

    def read(problem: dict[str, Any]) -> list[str]:
        asked: list[str] = []

        def answer(path: str, *fields: str) -> Any:
            asked.append(f"{path}: {' '.join(fields)}")
            found = {**ANSWERS, **problem}[path]
            if isinstance(found, tuple):
                raise reader["SwitchProblemError"](*found)
            return found

        def connect(target: dict[str, Any], password: str) -> SimpleNamespace:
            asked.append(f"{target['name']} with the password {password}")
            return SimpleNamespace(
                get=lambda path, fields: answer(path, *fields),
                monitor=lambda path, ids, fields: answer(f"monitor {','.join(ids)}", path, *fields),
                close=lambda: asked.append("closed"),
            )

        monkeypatch.setitem(reader, "Connection", connect)
        text = reader["read_switch"](TARGET, "of the reader").text()
        (stamp,) = re.findall(r"^sparkrack_switch_reading_timestamp_seconds\{switch=\"crs812\"\} (\S+)$", text, re.M)
        assert abs(float(stamp) - time.time()) < 600
        return [*text.replace(stamp, "now").splitlines(), *capsys.readouterr().err.splitlines(), *asked]

    healthy, found = read({}), read(PROBLEMS[name])
    if found != healthy:
        # Without the lines of HELP and TYPE, which follow from the others.
        lines = list(difflib.unified_diff(healthy, found, n=0, lineterm=""))[2:]
        found = [line for line in lines if not line.startswith(("@@", "-# ", "+# "))]
    generated.check_in_test(READINGS, "".join(f"{line}\n" for line in found))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("5s", 5),
        ("1m", 60),
        ("1h1s", 3601),
        ("1d", 86400),
        ("2w1d", 15 * 86400),
        ("1s1m", None),
        ("5", None),
    ],
)
def test_a_time_of_routeros_in_seconds(reader: dict[str, Any], text: str, seconds: float | None) -> None:
    assert reader["_parse_uptime"](text) == seconds


def test_what_is_published_is_a_small_file_and_nothing_old_stays(reader: dict[str, Any], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target.prom"

    def refused() -> str:
        target.write_text("old")
        with pytest.raises(reader["ReaderError"]) as caught:
            reader["publish"](source, target)
        assert not target.exists()
        return str(caught.value)

    source.write_bytes(b"x" * 2**20)
    reader["publish"](source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target.prom"]
    source.write_bytes(b"x" * (2**20 + 1))
    assert refused() == f"{source}: no file of metrics"
    source.unlink()
    os.mkfifo(source)
    assert refused() == f"{source}: no file of metrics"
    source.unlink()
    source.symlink_to(tmp_path / "other")
    assert refused() == f"{source}: Too many levels of symbolic links"
    source.unlink()
    target.write_text("old")
    for _ in range(2):
        reader["publish"](source, target)
        assert not target.exists()
    source.write_text("new")
    with pytest.raises(reader["ReaderError"]) as caught:
        reader["publish"](source, tmp_path / "none/target.prom")
    assert str(caught.value) == f"{tmp_path}/none/target.prom: No such file or directory"
