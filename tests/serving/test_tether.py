"""What a tether does with an order of its keeper: alone, with a systemctl that notes how it is called."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.serving.serve_modules import serve_keeper, serve_slice, serve_tether, serve_unit
from tests.serving.test_unit_file import MINIMAL, written

START = "start sparkrack-serve-qwen.service"


class LoneTether:
    """The tether of rank 1, whose service is at rest."""

    def __init__(self, folder: Path, cgroups: Path | str = serve_slice.CGROUPS) -> None:
        self.calls = folder / "calls"
        self.calls.touch()
        (folder / "systemctl").write_text(f'echo "$*" >> {self.calls}\n')
        (folder / "secret").write_text("0" * 64)
        (folder / "secret").chmod(0o600)
        (folder / "boot").write_text("boot1\n")
        self.journal = folder / "journal"
        """A script that prints what journalctl does."""
        commands = {
            name: ["sh", str(file)]
            for name, file in (("systemctl", folder / "systemctl"), ("journalctl", self.journal))
        }
        values = MINIMAL | {"secret_file": str(folder / "secret"), **commands}
        self.folder, self.cgroups = folder, cgroups
        self.unit = serve_unit.load_unit(written(folder, values))
        self.tether = self.begin()

    def begin(self) -> serve_tether.Tether:
        """Start a tether."""
        paths = str(self.folder / "state"), str(self.folder / "boot")
        tether = serve_tether.Tether(self.unit, self.unit.rank(1), *paths, cgroups=str(self.cgroups))
        tether._service = serve_tether.ServiceState("inactive")
        return tether

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


@pytest.mark.parametrize(
    "logged",
    [
        "sparkrack-memory-guard: 9 KiB of memory are available, less than the floor of 10 KiB: ended every container",
        "NVRM: Xid (PCI:000f:01:00): 79, pid=1234, GPU has fallen off the bus.",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)",
        "Memory cgroup out of memory: Killed process 4711 (VLLM::Worker) total-vm:104857600kB",
    ],
)
def test_a_fault_that_the_kernel_logged_forbids_another_start(lone: LoneTether, logged: str) -> None:
    armed = (
        "echo 'sparkrack-memory-guard: armed again: 9 KiB of memory are available'\n"
        "echo 'NVRM: Xid (PCI:000f:01:00): 45, pid=1234, Ch 00000008'\n"
    )
    lone.journal.write_text(armed)
    assert lone.tether._kernel_fault() == ""
    lone.journal.write_text(f"{armed}echo '{logged}'\n")
    assert lone.tether._kernel_fault() == f"the kernel logged: {logged}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 1", "exit code 1"), ("echo 'No journal files were found.' >&2", "No journal files were found.")],
)
def test_a_kernel_log_that_cannot_be_read_forbids_another_start(lone: LoneTether, script: str, reason: str) -> None:
    lone.journal.write_text(script)
    assert lone.tether._kernel_fault() == f"the kernel's log cannot be read: {reason}"


def test_a_tether_reads_the_record_of_another_release(lone: LoneTether) -> None:
    file = lone.folder / "state/qwen.rank.json"
    before = serve_tether.RankRecord("boot1", 7, running=True, invocation="x", started=12.5, kernel="Xid")
    for name in asdict(before):
        values = {key: value for key, value in asdict(before).items() if key != name} | {"of a later release": 1}
        file.write_text(json.dumps(values))
        record = lone.begin().record
        default = asdict(serve_tether.RankRecord("boot1"))[name]
        assert asdict(record) == {**asdict(before), "ended_clean": False, name: default}
        assert json.loads(file.read_text()) == asdict(record)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON: Expecting"),
        ("[1]", "expected an object"),
        ('{"generation": true}', "generation is True"),
        ('{"generation": "7"}', "generation is '7'"),
        ('{"started": "x"}', "started is 'x'"),
    ],
)
def test_a_damaged_record_of_a_rank_is_refused_with_the_file_and_what_repairs_it(
    lone: LoneTether, content: str, said: str
) -> None:
    file = lone.folder / "state/qwen.rank.json"
    file.write_text(content)
    with pytest.raises(serve_unit.ServeError) as refused:
        lone.begin()
    assert str(refused.value).startswith(f"{file}: {said}")
    assert str(refused.value).endswith("; stop the rank (`systemctl stop sparkrack-serve-qwen`) and remove the file")
    file.unlink()
    assert lone.begin().record.generation == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON: "),
        ("[1]", "expected an object"),
        ('{"generation": true}', "the state file: generation is True"),
    ],
)
def test_a_damaged_record_of_a_unit_is_refused_with_the_file_and_what_repairs_it(
    lone: LoneTether, content: str, said: str
) -> None:
    file = lone.folder / "qwen.record"
    file.write_text(content)
    with pytest.raises(serve_unit.ServeError) as refused:
        serve_keeper._read_unit_record(str(file), lone.unit)
    assert str(refused.value).startswith(f"{file}: {said}")
    assert str(refused.value).endswith(
        "; stop keeper and tethers on all nodes (`systemctl stop sparkrack-serve-qwen-keeper "
        "sparkrack-serve-qwen-tether`), remove the file, and run `sparkrack apply --only serving`"
    )
    file.unlink()
    assert serve_keeper._read_unit_record(str(file), lone.unit).state == "down"


FAILED = "docker: Error response from daemon: unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown"
NO_GPU = (
    "docker gave the container no GPU (unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown); "
    "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
)


@pytest.mark.parametrize(
    ("active", "ended", "beginning"),
    [("failed", True, ""), ("deactivating", True, "its process ended without being asked to: ")],
)
def test_a_rank_that_ends_at_its_start_reports_what_docker_printed(
    lone: LoneTether, active: str, ended: bool, beginning: str
) -> None:
    """Only lines of this invocation, since its start: the ones before may be of another fault."""
    lone.journal.write_text(
        'case "$*" in "--output=cat --no-pager --lines=200 --since=@1700000000 _SYSTEMD_INVOCATION_ID=abc") '
        f"echo '{FAILED}'; echo \"Run 'docker run --help' for more information\" ;; esac\n"
    )
    lone.tether.record.running, lone.tether.record.started = True, 1700000000.5
    detail = "exit code 125, result exit-code"
    lone.tether._service = serve_tether.ServiceState(active, detail, "abc", ended, "125")
    assert lone.tether._report()["detail"] == f"{beginning}{detail}: {NO_GPU}"


def test_a_rank_whose_log_cannot_be_read_reports_its_exit_code(lone: LoneTether) -> None:
    lone.journal.write_text("exit 1")
    lone.tether.record.running = True
    lone.tether._service = serve_tether.ServiceState("failed", "exit code 1, result exit-code", "abc", True, "1")
    assert lone.tether._report()["detail"] == "exit code 1, result exit-code"


def test_a_rank_that_was_asked_to_stop_reports_nothing_of_its_log(lone: LoneTether) -> None:
    lone.journal.write_text(f"echo '{FAILED}'")
    lone.tether.record.running, lone.tether._ended = True, True
    lone.tether._service = serve_tether.ServiceState("deactivating", "exit code 0", "abc", True, "0")
    assert lone.tether._report()["detail"] == ""


@pytest.mark.parametrize(("anyway", "words"), [(False, ""), (True, "--anyway")])
def test_the_gate_is_asked_as_the_operator_wished(lone: LoneTether, tmp_path: Path, anyway: bool, words: str) -> None:
    gate = tmp_path / "gate"
    gate.write_text('echo "n1: ready; it says $*"')
    lone.tether.unit = replace(lone.tether.unit, gate=("sh", str(gate)))
    lone.tether._obey("gate", 3, anyway=anyway)
    assert lone.tether._gate
    assert lone.tether._gate[1]._process
    lone.tether._gate[1]._process.wait(60)
    lone.tether._finish_tasks()
    assert lone.tether._verdict == (3, True, f"it says {words}".strip())
    assert lone.run(3, lone.tether._verdict) == [START], "a remark does not keep the rank from starting"


def test_a_gate_that_passed_without_a_remark_has_none(lone: LoneTether, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_text('echo "n1: ready"')
    lone.tether.unit = replace(lone.tether.unit, gate=("sh", str(gate)))
    lone.tether._obey("gate", 3)
    assert lone.tether._gate
    assert lone.tether._gate[1]._process
    lone.tether._gate[1]._process.wait(60)
    lone.tether._finish_tasks()
    assert lone.tether._verdict == (3, True, "")
