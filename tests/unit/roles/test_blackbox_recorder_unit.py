"""The desired state of the flight recorder, what a node says of it, and its units where samples leave the node."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from core.model import Rack
from core.ops import host_facts
from core.ops.host_facts import HostReading
from roles.blackbox import apply, desired, facts, recorder, services, stream_routes
from roles.blackbox.options import RecorderOptions
from tests.unit.model.racks import RING, SWITCH, changed, loaded
from tests.unit.ops.shells import calls, run, stand_in, write
from tests.unit.roles import recorder_files
from tests.unit.roles.cases import OPERATIONS, node_in, rack_of, read
from tests.unit.roles.recorder_runs import recorder as program_module

STATE = host_facts._registered["blackbox"].commands[facts.RECORDER_STATE]


def rack(section: str = "recorder: {}", base: str = SWITCH) -> Rack:
    name = base.partition("rack: ")[2].partition("\n")[0]
    return loaded(changed(base, (f"rack: {name}", f"rack: {name}\nblackbox: {{{section}}}")))


def facts_of(case: str) -> facts.BlackboxFacts:
    """The facts of a case in tests/cases/operations."""
    found = read(OPERATIONS / "blackbox" / f"{case}.yaml")
    answers = {
        key: text.encode() if isinstance(text, str) else text for key, text in node_in("blackbox", found).items()
    }
    one = rack_of(found)
    return facts.BlackboxFacts(HostReading(answers, {}), one, one.nodes["spark1"])


def test_the_cases_have_the_files_of_now() -> None:
    """The hash of the program and the unit stand in a file that cases read."""
    found = read(recorder_files.BASE)
    assert found == recorder_files.state(), "run `python -m tests.unit.roles.recorder_files`"


def test_nothing_without_a_declaration() -> None:
    found = rack("recorder: false")
    assert recorder.files(found, found.nodes["spark1"]) == []
    assert recorder.options(rack("watchdog: 60s")) is None


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("pending", [True, False])
def test_the_state_of_a_node(tmp_path: Path, present: bool, pending: bool) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    if present:
        ring = write(tmp_path, recorder.RING)
        os.utime(ring, (time.time() - 100, time.time() - 100))
    if pending:
        for command in services.RECORDER.set_mark():
            assert run(command, tmp_path).returncode == 0
    done = run(STATE, tmp_path)
    assert done.returncode == 0, done.stderr
    found = recorder.state(desired.parse_live(done.stdout))
    assert found.pending == pending
    assert found.python
    assert (found.age is not None) == present
    if found.age is not None:
        assert 100 <= found.age < 160
    (tmp_path / services.RECORDER.mark.lstrip("/")).unlink(missing_ok=True)
    assert not recorder.state(desired.parse_live(run(STATE, tmp_path).stdout)).pending


@pytest.mark.parametrize(
    ("case", "reported"),
    [
        (
            "recorder-new",
            [
                f"write {recorder.PROGRAM}",
                f"create {recorder.UNITS[recorder.NAME]}",
                f"enable {recorder.NAME}",
                f"start {recorder.NAME}",
            ],
        ),
        ("recorder-program-differs", [f"rewrite {recorder.PROGRAM}", f"restart {recorder.NAME}"]),
        ("recorder-silent", [f"restart {recorder.NAME}: its last sample is 61 s old"]),
        ("recorder-clock-went-back", [f"restart {recorder.NAME}: its last sample is 3600 s in the future"]),
        ("recorder-without-a-ring", [f"restart {recorder.NAME}: it has written no sample"]),
        (
            "recorder-removed",
            [f"stop and remove {recorder.NAME}: rack.yaml declares nothing that needs it"],
        ),
        (
            "recorder-removal-of-a-run-that-died",
            [f"stop and remove {recorder.NAME}: rack.yaml declares nothing that needs it"],
        ),
        (
            "recorder-receives-no-more",
            [f"stop and remove {recorder.RECEIVER}: rack.yaml declares nothing that needs it"],
        ),
    ],
)
def test_what_the_plan_says(case: str, reported: list[str]) -> None:
    changeset = apply.record_samples.changeset(facts_of(case))
    assert [event.message for event in changeset.events] == reported


def test_removal_leaves_the_rings(tmp_path: Path) -> None:
    """What was recorded is evidence; all else is gone, also when the unit cannot be stopped."""
    stand_in(tmp_path, "systemctl", 'case "$1" in stop) exit 5;; esac')
    kept = [write(tmp_path, recorder.RING), write(tmp_path, f"{recorder.PEERS}/spark2.ring")]
    gone = [
        write(tmp_path, path)
        for path in (
            recorder.PROGRAM,
            recorder.METRICS,
            recorder.UNITS[recorder.NAME],
            f"/etc/systemd/system/multi-user.target.wants/{recorder.NAME}",
            "/run/sparkrack/blackbox-recorder.pending",
        )
    ]
    *_, command = apply.record_samples.changeset(facts_of("recorder-removed")).commands
    done = run(command, tmp_path)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    assert [path for path in gone if path.exists()] == []
    assert all(path.exists() for path in kept)
    assert calls(tmp_path) == [f"systemctl stop {recorder.NAME}", "systemctl daemon-reload"]


# Where samples leave the node


def test_samples_stay_on_the_node_until_rack_yaml_says_otherwise() -> None:
    found = rack()
    assert all(recorder.sample_stream(found, node) is None for node in found.nodes.values())
    assert [file.path for file in recorder.files(found, found.nodes["spark1"])] == [
        recorder.PROGRAM,
        recorder.UNITS[recorder.NAME],
    ]


def test_who_receives() -> None:
    """All send to the server, the first node without a cap of its clock; the server sends to the node after it."""
    found = rack("recorder: {}, clock_cap: {spark1: 2200}", RING)
    names = list(found.nodes)
    sends = {name: stream_routes.receiver(found, node) for name, node in found.nodes.items()}
    assert stream_routes.server(found).name == names[1]
    assert {name: node.name for name, node in sends.items() if node} == {
        name: names[2 % len(names)] if name == names[1] else names[1] for name in names
    }
    capped = rack("clock_cap: {spark1: 2200, spark2: 2200}")
    assert stream_routes.server(capped).name == "spark1"


def test_the_samples_of_each_node_go_to_its_receiver() -> None:
    found = rack("recorder: {}, remote: plain", RING)
    for node in found.nodes.values():
        receiver = stream_routes.receiver(found, node)
        assert receiver
        stream = recorder.SampleStream("plain", stream_routes.address(receiver), receiver.name)
        assert recorder.sample_stream(found, node) == stream
        units = {file.path: file.content.decode() for file in recorder.files(found, node)}
        assert f" --send {receiver.name}={stream_routes.address(receiver)}:6667" in units[recorder.UNITS[recorder.NAME]]


def test_the_units_of_a_stream() -> None:
    found = rack()
    one, other = found.nodes.values()
    for mode in ("tls", "plain"):
        stream = recorder.SampleStream(mode, str(other.address), other.name)
        sends = recorder.unit(found, one, RecorderOptions(), stream).content.decode()
        receives = recorder.receive_unit(found, other, RecorderOptions(), {one.name: stream}).content.decode()
        assert f" --send spark2={other.address}:6667" in sends
        assert f" --listen {other.address}:6667 " in receives
        assert f" --peer spark1={one.address}" in receives
        tls = " --tls /etc/sparkrack/blackbox/ca.pem /etc/sparkrack/blackbox/node.pem /etc/sparkrack/blackbox/node.key"
        assert (tls in sends, tls in receives) == (mode == "tls", mode == "tls")
        assert "RestrictAddressFamilies=AF_UNIX AF_INET\n" in sends
    assert "AF_INET" not in recorder.unit(found, one, RecorderOptions(), None).content.decode()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Also with the real option parser of the program: each command line is one that it takes."""
    found = rack("recorder: {rate: 4, keep: 1m}, clock_cap: {spark1: 2200}")
    one, other = found.nodes.values()
    stream = recorder.SampleStream("tls", str(other.address), other.name)
    options = RecorderOptions(rate=4, keep="1m")
    program, *_ = recorder.files(found, one)
    script = tmp_path / "recorder.py"
    script.write_bytes(program.content)
    script.chmod(0o755)
    for file in (
        recorder.unit(found, one, options, stream),
        recorder.receive_unit(found, other, options, {one.name: stream}),
    ):
        text = file.content.decode().replace(recorder.PROGRAM, str(script))
        unit = tmp_path / Path(file.path).name
        unit.write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        words = next(line for line in text.splitlines() if line.startswith("ExecStart=")).partition("=")[2].split()
        given = program_module._make_argument_parser().parse_args(words[1:])
        assert (given.rate, given.keep, len(given.tls)) == (4, 60, 3)
