"""The proof of the flight recorder: it passes on a node that records, and each thing broken fails it.

`dump` is the real program, on real rings; only the clock of the node stands still.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import Rack
from core.verify.reporter import CheckReporter
from roles.blackbox import recorder, verify
from roles.blackbox.options import BlackboxOptions
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import CheckOutcomes, Machine
from tests.unit.roles.recorder_runs import BOOT, PROGRAM
from tests.unit.roles.recorder_runs import recorder as program

NOW = 1_700_000_000.0


def rack(section: str = "recorder: {}") -> Rack:
    return loaded(changed(SWITCH, ("rack: two", f"rack: two\nblackbox: {{{section}}}")))


def node(
    root: Path,
    age: float = 0.0,
    boot: str = BOOT,
    gpu: str = "ok",
    ring: str = recorder.RING,
    load: str = "loaded",
    active: str = "active",
    enabled: str = "enabled",
    metrics_age: float = 0.0,
    listens: str = "",
    receives: str = "active",
) -> Path:
    """A node that records, but for these."""
    show = f"LoadState={load}\nActiveState={active}\nUnitFileState={enabled}"
    received = f"ActiveState={receives}\nUnitFileState=enabled"
    stand_in(
        root,
        "systemctl",
        f"case \"$*\" in *{recorder.RECEIVER}) printf '%s\\n' '{received}';; *) printf '%s\\n' '{show}';; esac",
    )
    lines = " ".join(["0.0.0.0:22", "[::]:16667", *listens.split()])
    stand_in(root, "ss", f"""for a in {lines}; do echo "LISTEN 0 64 $a 0.0.0.0:*"; done""")
    stand_in(root, "date", f"echo {NOW:.0f}")
    write(root, "/proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n")
    write(root, recorder.PROGRAM, PROGRAM.read_text()).chmod(0o755)
    name = "sparkrack_recorder_last_sample_timestamp_seconds"
    write(root, recorder.METRICS, f"# HELP {name} x\n{name} {NOW - metrics_age:.3f}\n")
    records(root, ring, age, boot, gpu)
    return root


def records(root: Path, ring: str, age: float, boot: str = BOOT, gpu: str = "ok") -> None:
    """A ring whose newest record is so old."""
    path = write(root, ring)
    path.unlink()
    made = program.Ring(path, 10)
    for number in (1, 2):
        body = {
            "time": NOW - age - 2 + number,
            "node": "spark1",
            "gpu": {"state": gpu},
            "zones": {},
            "carrier": {},
        }
        made.put(number, program.encode(number, boot, {**body, "log": None}))


def outcomes(root: Path, found: Rack) -> tuple[list[str], list[str]]:
    """What fails, and what is skipped."""
    one, machine = found.nodes["spark1"], Machine(root)
    seen = CheckOutcomes()
    seen.run(verify.test_samples_are_recorded, one, machine, found, CheckReporter([]))
    seen.run(verify.test_metrics_of_the_recorder_are_new, one, machine, found)
    seen.run(verify.test_samples_of_other_nodes_arrive, one, machine, found, CheckReporter([]))
    return seen.failed, seen.skipped


def test_a_node_that_records(tmp_path: Path) -> None:
    assert outcomes(node(tmp_path), rack()) == ([], ["no node sends samples to this one"])


@pytest.mark.parametrize(
    ("broken", "reported"),
    [
        ({"active": "failed"}, f"{recorder.NAME} is failed, wanted active"),
        ({"enabled": "disabled"}, f"{recorder.NAME} is disabled, wanted enabled"),
        ({"age": 500}, "the newest record is 500 s old, wanted at most 5 s old"),
        ({"age": -500}, "the newest record is 500 s in the future, wanted at most 5 s old"),
        ({"metrics_age": -300}, f"the sample of {recorder.METRICS} is 300 s in the future, wanted at most 60 s old"),
        ({"ring": "/var/lib/other"}, f"{recorder.RING} has no record"),
        ({"gpu": "stale"}, f"values of the GPU are stale; journalctl --unit={recorder.NAME}"),
        ({"metrics_age": 300}, f"the sample of {recorder.METRICS} is 300 s old, wanted at most 60 s old"),
    ],
)
def test_what_is_broken_fails(tmp_path: Path, broken: dict[str, Any], reported: str) -> None:
    (found,) = outcomes(node(tmp_path, **broken), rack())[0]
    assert found.replace(str(tmp_path), "") == f"spark1: {reported}"


def test_a_record_of_another_boot_fails(tmp_path: Path) -> None:
    (found,) = outcomes(node(tmp_path, boot="f" * 32), rack())[0]
    assert found.startswith("spark1: the newest record is ")


def test_metrics_without_a_sample_fail(tmp_path: Path) -> None:
    write(node(tmp_path), recorder.METRICS, "sparkrack_recorder_samples_total 7\n")
    (found,) = outcomes(tmp_path, rack())[0]
    assert found.endswith(f"{recorder.METRICS} has no sparkrack_recorder_last_sample_timestamp_seconds")


def test_a_recorder_that_is_not_declared(tmp_path: Path) -> None:
    failed, skipped = outcomes(node(tmp_path), rack("recorder: false"))
    assert failed == [f"spark1: {recorder.NAME} is there, and no recorder is declared"]
    assert skipped == ["rack.yaml declares no recorder", "no node sends samples to this one"]
    assert outcomes(node(tmp_path, load="not-found"), rack("recorder: false"))[0] == []


@pytest.mark.parametrize(
    ("age", "reported"),
    [
        (0, []),
        (600, ["spark1: the newest sample of spark2 is 600 s old, wanted at most 60 s old"]),
        (-600, ["spark1: the newest sample of spark2 is 600 s in the future, wanted at most 60 s old"]),
        (None, ["spark1: no sample of spark2 has arrived"]),
    ],
)
def test_samples_of_other_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float | None, reported: list[str]
) -> None:
    found = rack()
    streams = {"spark2": recorder.SampleStream("plain", str(found.nodes["spark1"].address), "spark1"), "spark1": None}
    monkeypatch.setattr(recorder, "sample_stream", lambda _rack, node: streams[node.name])
    root = node(tmp_path)
    if age is not None:
        records(root, f"{recorder.PEERS}/spark2.ring", age)
    failed, skipped = outcomes(root, found)
    assert failed == reported
    assert skipped == []


def listening(root: Path, found: Rack, name: str = "spark1") -> str:
    """What is wrong with the address at which samples are received; empty where nothing is."""
    one, declared = found.nodes[name], found.options(BlackboxOptions)
    try:
        verify.test_samples_are_received_at_the_management_address(
            one, Machine(root), found, declared, CheckReporter([])
        )
    except AssertionError as error:
        return str(error).splitlines()[0]
    return ""


@pytest.mark.parametrize(
    ("listens", "reported"),
    [
        ("10.77.0.11:6667", ""),
        ("0.0.0.0:6667", "samples are received at 0.0.0.0:6667, wanted 10.77.0.11:6667"),
        (
            "10.77.0.11:6667 [::]:6667",
            "samples are received at 10.77.0.11:6667, [::]:6667, wanted 10.77.0.11:6667",
        ),
        ("", "samples are received at no address, wanted 10.77.0.11:6667"),
    ],
)
def test_samples_are_received_at_one_address(tmp_path: Path, listens: str, reported: str) -> None:
    found = listening(node(tmp_path, listens=listens), rack("remote: plain, recorder: {}"))
    assert found == (f"spark1: {reported}" if reported else "")


def test_a_receiver_of_samples_that_does_not_run_fails(tmp_path: Path) -> None:
    found = rack("remote: tls, recorder: {}")
    broken = node(tmp_path, listens="10.77.0.11:6667", receives="failed")
    assert listening(broken, found) == f"spark1: {recorder.RECEIVER} is failed, wanted active"


def test_a_node_that_receives_no_samples_has_no_open_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rack("remote: plain, recorder: {}")
    monkeypatch.setattr(recorder, "senders", lambda _rack, _node: {})
    assert listening(node(tmp_path / "a", listens="127.0.0.1:6667"), found) == (
        "spark1: samples are received at 127.0.0.1:6667, wanted no address"
    )
    assert listening(node(tmp_path / "b"), found) == ""


@pytest.mark.parametrize("section", ["recorder: {}", "remote: plain, recorder: false"])
def test_samples_that_stay_on_their_node_are_not_looked_for(tmp_path: Path, section: str) -> None:
    with pytest.raises(pytest.skip.Exception, match="has the samples stay on their node"):
        listening(node(tmp_path), rack(section))
