"""The part `burn` of `sparkrack accept --level load`: what a node with a stand-in of the driver shows of its claims."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import Rack, load
from core.ssh import node_shells
from core.ssh.root_shell import UnreachableError
from core.util import resources
from core.util.progress import NO_PROGRESS
from core.verify.outcomes import Outcome
from sparkrack.accept.load import burn
from sparkrack.accept.load.burn import CAP_CHECK, CLAIMS, RECORDER_CHECK, burned
from sparkrack.accept.load.part import LoadError, LoadRun
from sparkrack.accept.load.run import LoadOptions
from sparkrack.accept.model import MachineResult
from sparkrack.rebuild import restart
from sparkrack.rebuild.restart import BOOT_ID
from tests.unit.accept.driver_standin import LINE, environment, left_processes, make_driver
from tests.unit.status.machines import reference


@dataclass
class Node:
    """Nodes with one driver. `words`: what the stand-in of libcuda does; `breaks`: the session ends under load; `boot`,
    `next`: the identity of the boot before that and after it, empty for a node that does not come back; `silent`: no
    node answers; `burns`: the nodes that were loaded.
    """

    driver: Path
    words: str = ""
    breaks: bool = False
    boot: str = "first"
    next: str = "first"
    silent: bool = False
    burns: list[str] = field(default_factory=list)

    def shell(self, node: str, _config: Path, _seconds: float) -> Any:
        return SimpleNamespace(run=lambda script: self.run(node, script), close=lambda: None, hostname=node)

    def run(self, node: str, script: str) -> Any:
        if self.silent:
            raise UnreachableError(node, "Connection timed out")
        if script == BOOT_ID:
            return SimpleNamespace(rc=0, stdout=self.boot, stderr="")
        self.burns.append(node)
        done = subprocess.run(
            ["sh", "-c", script],
            env=environment(self.driver, CUDA_STANDIN=self.words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if self.breaks:
            self.boot, self.silent = self.next, not self.next
            raise UnreachableError(node, "the connection ended")
        return SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_driver(tmp_path_factory.mktemp("driver") / "made")


@pytest.fixture
def node(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(Path(shutil.copytree(compiled, tmp_path / "driver")))
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    monkeypatch.setattr(burn, "working", lambda *_, **__: {})
    monkeypatch.setattr(burn, "run_checks", lambda *_, **__: pytest.fail("no unit is declared"))
    monkeypatch.setattr(burn, "RETURN_SECONDS", 0.0)
    monkeypatch.setattr(restart, "POLL_SECONDS", 0.01)
    _constants(monkeypatch, COOL_SECONDS="0.5", START_SECONDS="2.0", SILENT_SECONDS="2.0")
    return made


def _constants(patch: pytest.MonkeyPatch, **values: str) -> None:
    """What does not come is not waited for."""
    text = resources.file_text("sparkrack.accept.load", "files/gpu_burn.py")
    for name, value in values.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} = ")]
        text = text.replace(f"\n{line}\n", f"\n{name} = {value}\n")
    patch.setattr(burn, "resources", SimpleNamespace(file_text=lambda *_: text))


def a_run(rack: Rack, *nodes: str) -> LoadRun:
    free: Any = None
    held: Any = SimpleNamespace(head="spark1", check=lambda: None)
    return LoadRun(rack, nodes, frozenset(), NO_PROGRESS, lambda _: None, held, free, free)


def found(rack: Rack, seconds: int = 1) -> dict[str, MachineResult]:
    results = {claim: list(hosts) for claim, hosts in burned(a_run(rack, "spark2"), seconds).items()}
    assert set(results) == set(CLAIMS)
    return {claim: host for claim, (host,) in results.items()}


def results(rack: Rack, seconds: int = 1) -> tuple[str, ...]:
    """Those of CLAIMS in their order: `unknown` for an answer that is none."""
    hosts = found(rack, seconds)
    return tuple("unknown" if hosts[claim].unknown else hosts[claim].result for claim in CLAIMS)


def with_blackbox(folder: Path, **options: object) -> Rack:
    rack = reference(folder)
    document = YAML(typ="safe").load(rack.source)
    document["blackbox"] = options
    YAML(typ="safe").dump(document, rack.source)
    return load(rack.source)


def test_a_sound_gpu_of_a_rack_without_a_black_box(node: Node, tmp_path: Path) -> None:
    hosts = found(reference(tmp_path))
    assert [(hosts[claim].result, hosts[claim].unknown) for claim in CLAIMS] == [
        ("observed", False),
        ("not observed", False),
        ("not observed", False),
    ]
    text = hosts["accept.burn"].evidence
    assert "0 with a wrong result; 2190 to 2190 MHz (before 2190, after 2190); 61.2 to 61.2 W" in text
    assert "sw_power_cap in" in text
    assert "declares no blackbox.clock_cap for it; " in hosts["blackbox.clock-cap"].evidence
    assert "its sandbox needs a declared blackbox.recorder" in hosts["blackbox.recorder-gpu"].evidence
    assert left_processes(str(node.driver)) == []


def _line(old: str, new: str) -> Callable[[Node], None]:
    return _file("line", LINE.replace(old, new) + "\n")


def _file(name: str, text: str = "") -> Callable[[Node], None]:
    def plant(node: Node) -> None:
        (node.driver / name).write_text(text)

    return plant


def _words(text: str) -> Callable[[Node], None]:
    def plant(node: Node) -> None:
        node.words = text

    return plant


def _no_libcuda(node: Node) -> None:
    (node.driver / "libcuda.so.1").unlink()


def _breaks(boot: str) -> Callable[[Node], None]:
    def plant(node: Node) -> None:
        node.breaks, node.next = True, boot

    return plant


UNKNOWN3, NOTHING3 = ("unknown",) * 3, ("not observed",) * 3
PLANTED: Mapping[str, tuple[Callable[[Node], None], tuple[str, ...], str]] = {
    "a wrong result": (_words("wrong:3."), ("refuted", *NOTHING3[1:]), "1 with a wrong result"),
    "heat holds the clock down": (_line("0004", "0040"), ("refuted", *NOTHING3[1:]), "hw_thermal in"),
    "the power supply does": (_line("0004", "0080"), ("refuted", *NOTHING3[1:]), "hw_power_brake in"),
    "a driver that hangs under load": (_words("stop:3."), ("refuted", *UNKNOWN3[1:]), "gives no answer for"),
    "a driver that hangs before": (_words("hang:cuInit"), UNKNOWN3, "cuInit gives no answer for"),
    "an error of the driver": (_words("fail:cuLaunchKernel=700"), ("refuted", *UNKNOWN3[1:]), "cuLaunchKernel"),
    "a restart under load": (_breaks("second"), ("refuted", *UNKNOWN3[1:]), "it restarted while its GPU was loaded"),
    "a session that breaks": (_breaks("first"), UNKNOWN3, "under load: the connection ended"),
    "no value of the margin": (_line("30,", "[N/A],"), ("observed", "not observed", "refuted"), "no value of margin"),
    "no value of the clock": (_line("2190,", "[N/A],"), ("observed", "not observed", "refuted"), "no value of clock"),
    "nvidia-smi ends": (_file("ends"), ("observed", "not observed", "refuted"), "nvidia-smi ended"),
    "no libcuda": (_no_libcuda, NOTHING3, "not tried: libcuda.so.1: cannot open"),
    "no driver": (_file("broken", "no driver\n"), NOTHING3, "not tried: nvidia-smi: exit 9: no driver"),
    "another process computes": (_file("apps", "811, vllm\n"), UNKNOWN3, "not tried: another process computes"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_difference(case: str, node: Node, tmp_path: Path) -> None:
    plant, wanted, text = PLANTED[case]
    plant(node)
    hosts = found(reference(tmp_path), 2)
    assert tuple("unknown" if hosts[claim].unknown else hosts[claim].result for claim in CLAIMS) == wanted, hosts
    assert any(text in one.evidence for one in hosts.values()), hosts
    assert left_processes(str(node.driver)) == []


CHECKED: Mapping[str, tuple[str, bool, str]] = {
    "the clock stays below its cap": ("2190", True, "observed"),
    "a little above it": ("2240", True, "observed"),
    "the clock exceeds its cap": ("2260", True, "refuted"),
    "the check of the unit fails": ("2190", False, "refuted"),
}


@pytest.mark.parametrize("case", CHECKED)
def test_a_declared_cap(case: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, passed, result = CHECKED[case]
    _line("2190", clock)(node)
    monkeypatch.setattr(burn, "run_checks", checks(CAP_CHECK, passed=passed))
    rack = with_blackbox(tmp_path, clock_cap={"spark2": 2200})
    host = found(rack)["blackbox.clock-cap"]
    assert (host.result, host.unknown) == (result, False), host
    assert f"cap 2200 MHz, highest clock {clock} MHz" in host.evidence


@pytest.mark.parametrize(("passed", "result"), [(True, "observed"), (False, "refuted")])
def test_a_declared_recorder(
    passed: bool, result: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burn, "run_checks", checks(RECORDER_CHECK, passed=passed))
    host = found(with_blackbox(tmp_path, recorder={}))["blackbox.recorder-gpu"]
    assert (host.result, host.unknown) == (result, False), host


def checks(name: str, *, passed: bool) -> Callable[..., list[Outcome]]:
    """In place of the checks of the black box: this one, and another that says nothing of the claim."""
    other = Outcome("spark2", "blackbox", "verify.py::test_other[spark2]", passed=False, why="another fault")
    own = Outcome("spark2", "blackbox", f"verify.py::{name}[spark2]", passed=passed, why="" if passed else "it differs")

    def run(_rack: Rack, _files: object, nodes: list[str], *_: object, **__: object) -> list[Outcome]:
        assert nodes == ["spark2"]
        return [other, own]

    return run


def test_checks_of_a_node_that_does_not_answer_prove_nothing(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dark = Outcome("spark2", "-", "-", passed=False, why="no answer", unknown=True)
    monkeypatch.setattr(burn, "run_checks", lambda *_, **__: [dark])
    assert results(with_blackbox(tmp_path, clock_cap={"spark2": 2200}, recorder={})) == ("observed", *UNKNOWN3[1:])


def test_a_node_that_does_not_come_back_ends_the_run(node: Node, tmp_path: Path) -> None:
    _breaks("")(node)
    with pytest.raises(LoadError, match="spark2: its GPU was loaded, and it did not come back"):
        found(reference(tmp_path))


def test_a_node_that_never_answered_is_not_loaded(node: Node, tmp_path: Path) -> None:
    node.silent = True
    assert results(reference(tmp_path)) == UNKNOWN3
    assert node.burns == []


def test_nodes_are_loaded_one_after_the_other_and_not_while_a_unit_runs(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burn, "working", lambda *_, **__: {"spark2": "unit qwen runs on spark2"})
    shown = burned(a_run(reference(tmp_path), "spark1", "spark2", "spark3"), 1)
    assert node.burns == ["spark1", "spark3"]
    assert {
        claim: [host.host for host in hosts if "not tried: unit qwen" in host.evidence]
        for claim, hosts in shown.items()
    } == {claim: ["spark2"] for claim in CLAIMS}


ANSWERS: Mapping[str, tuple[int, str, str]] = {
    "no python3": (127, "", "not tried: it has no python3"),
    "it was ended": (124, "\n", "did not end in time"),
    "another text": (0, "hello", "the answer is not understood: hello"),
    "another document": (0, '{"launches": []}', "the answer is not understood"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_is_none(case: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output, text = ANSWERS[case]
    monkeypatch.setattr(burn, "_command", lambda *_: f"printf %s '{output}'; exit {code}")
    hosts = found(reference(tmp_path))
    assert all(host.unknown and text in host.evidence for host in hosts.values()), hosts


def test_no_burn_is_asked_for_with_zero_seconds() -> None:
    assert LoadOptions().asks_for("burn")
    assert not replace(LoadOptions(), burn=0).asks_for("burn")
