"""The program that loads the GPU of a node, with a stand-in of the driver: what it prints, and what it leaves."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.util import resources
from tests.unit.accept.driver_standin import LINE, environment, left_processes, make_driver, processes

PROGRAM = resources.file_text("sparkrack.accept.load", "files/gpu_burn.py")
QUICK = {"START_SECONDS": "2.0", "SILENT_SECONDS": "2.0", "ANSWER_SECONDS": "2.0", "COOL_SECONDS": "0.5"}
"""What does not come is not waited for."""
WAIT_SECONDS = 60


def changed(**constants: str) -> str:
    """The program with other constants."""
    text = PROGRAM
    for name, value in constants.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    return text


@dataclass
class Node:
    """A node with a driver. `mark`: a text in the environment of every process of the program."""

    driver: Path
    home: Path

    @property
    def mark(self) -> str:
        return f"HOME={self.home}"

    def start(self, program: str, seconds: str = "1", **more: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-I", "-", seconds],
            cwd=self.home,
            env=environment(self.driver, HOME=str(self.home), TMPDIR=str(self.home), **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin
        child.stdin.write(program)
        child.stdin.close()
        child.stdin = None
        return child

    def burn(self, program: str = "", seconds: str = "1", **more: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and what was printed; no process and no file is left."""
        child = self.start(program or changed(COOL_SECONDS="0.5"), seconds, **more)
        output, _ = child.communicate(timeout=WAIT_SECONDS)
        assert left_processes(self.mark) == []
        assert list(self.home.iterdir()) == []
        found: dict[str, Any] = json.loads(output)
        return child.returncode, found


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_driver(tmp_path_factory.mktemp("driver") / "made")


@pytest.fixture
def node(compiled: Path, tmp_path: Path) -> Node:
    home = tmp_path / "home"
    home.mkdir()
    return Node(Path(shutil.copytree(compiled, tmp_path / "driver")), home)


def test_a_sound_gpu(node: Node) -> None:
    code, found = node.burn(changed(COOL_SECONDS="0.5", RAMP_SECONDS="0.0"), "2")
    assert (code, found["wrong"]) == (0, 0)
    assert found["launches"] > 1
    assert found["seconds"] >= 2
    assert found["highest"] == {"clock": 2190, "power": 61.2, "temperature": 55, "margin": 30, "utilization": 96}
    assert found["lowest"] == found["highest"]
    assert found["before"] == found["after"] == {**found["highest"], "pstate": "P0", "reasons": ["sw_power_cap"]}
    assert found["reasons"] == {"sw_power_cap": found["lines"]}
    assert found["lines"] >= 2
    assert found["lacking"] == []
    assert 0 < found["memory"]["lowest"] <= found["memory"]["before"]
    assert not {"absent", "refused", "hung", "fault"} & found.keys()


def test_a_wrong_result_is_counted(node: Node) -> None:
    code, found = node.burn(CUDA_STANDIN="wrong:3.")
    assert (code, found["wrong"]) == (1, 1)


def _without(name: str) -> Callable[[Node], None]:
    return lambda node: (node.driver / name).unlink()


def _with(name: str, text: str) -> Callable[[Node], None]:
    def plant(node: Node) -> None:
        (node.driver / name).write_text(text)

    return plant


def _as_it_is(_node: Node) -> None:
    pass


NOT_LOADED: Mapping[str, tuple[Callable[[Node], None], str, str, str]] = {
    "no libcuda": (_without("libcuda.so.1"), "", "absent", "libcuda.so.1: cannot open shared object"),
    "no nvidia-smi": (_without("nvidia-smi"), "", "absent", "nvidia-smi: No such file"),
    "no driver": (_with("broken", "it cannot communicate with the driver\n"), "", "absent", "exit 9: it cannot comm"),
    "no device": (_as_it_is, "fail:cuInit=100", "absent", "cuInit: error of the stand-in 100 (100)"),
    "no values": (_with("line", "No devices were found\n"), "", "absent", "prints no values of a GPU: No devices"),
    "another process": (_with("apps", "811, /usr/bin/vllm\n90, b\n"), "", "refused", "on the GPU: 811, /usr/bin/vllm"),
    "no memory of the GPU": (_as_it_is, "fail:cuCtxCreate_v2=2", "refused", "cuCtxCreate_v2: error of the stand-in 2"),
    "a GPU of another": (_as_it_is, "fail:cuCtxCreate_v2=46", "refused", "cuCtxCreate_v2"),
    "a refused program": (
        _as_it_is,
        "fail:cuModuleLoadData=222",
        "fault",
        "cuModuleLoadData: error of the stand-in 222",
    ),
    "a failing launch": (_as_it_is, "fail:cuLaunchKernel=700", "fault", "cuLaunchKernel: error of the stand-in 700"),
    "a driver that hangs at once": (_as_it_is, "hang:cuInit", "hung", "cuInit gives no answer for"),
    "nvidia-smi hangs": (_with("hangs", ""), "", "hung", "nvidia-smi gives no answer within 2 s"),
}


@pytest.mark.parametrize("case", NOT_LOADED)
def test_why_a_gpu_is_not_loaded(case: str, node: Node) -> None:
    plant, words, kind, text = NOT_LOADED[case]
    if case == "no nvidia-smi" and shutil.which("nvidia-smi"):
        pytest.skip("this machine has one")
    plant(node)
    code, found = node.burn(changed(**QUICK), CUDA_STANDIN=words)
    assert code == 1
    assert text in found[kind]
    assert found["launches"] == 0


def test_a_driver_that_hangs_under_load_is_given_up(node: Node) -> None:
    code, found = node.burn(changed(**QUICK), "3600", CUDA_STANDIN="stop:3.")
    assert code == 1
    assert found["launches"] >= 1
    assert "gives no answer for" in found["hung"]
    assert found["lines"] > 1


def test_memory_that_others_need_is_not_taken(node: Node) -> None:
    code, found = node.burn(changed(LEAST_AVAILABLE="1 << 60"))
    assert (code, found["launches"]) == (1, 0)
    assert "MiB of memory are available, wanted" in found["refused"]


def test_a_value_that_is_none(node: Node) -> None:
    (node.driver / "line").write_text(LINE.replace("30,", "[N/A],") + "\n")
    code, found = node.burn()
    assert (code, found["lacking"], found["highest"]["margin"]) == (0, ["margin"], None)


def test_a_field_that_nvidia_smi_does_not_know(node: Node) -> None:
    smi = node.driver / "nvidia-smi"
    refusal = (
        """case $* in *tlimit*) echo 'Field "temperature.gpu.tlimit" is not a valid field to query.'; exit 2 ;; esac"""
    )
    smi.write_text(smi.read_text().replace("case $* in", f"{refusal}\ncase $* in", 1))
    (node.driver / "line").write_text(LINE.replace("30, ", "") + "\n")
    code, found = node.burn()
    assert (code, found["lacking"], found["highest"]["power"]) == (0, ["margin"], 61.2)


def test_an_nvidia_smi_that_ends(node: Node) -> None:
    (node.driver / "ends").touch()
    code, found = node.burn()
    assert code == 0
    assert found["smi"].startswith("nvidia-smi ended")


def _beat(child: subprocess.Popen[str]) -> None:
    assert child.stdout
    assert child.stdout.readline() == "\n"


def test_a_driver_that_ends_the_process(node: Node) -> None:
    child = node.start(changed(**QUICK), "3600")
    _beat(child)
    own = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True, check=True).stdout.split()
    workers = [pid for pid in own if "nvidia-smi" not in Path(f"/proc/{pid}/cmdline").read_text()]
    subprocess.run(["kill", "-KILL", *workers], check=True)
    found = json.loads(child.communicate(timeout=WAIT_SECONDS)[0])
    assert "the process that asks the driver ended in cu" in found["fault"]
    assert left_processes(node.mark) == []


ENDS: Mapping[str, Callable[[subprocess.Popen[str]], None]] = {
    "killed": lambda child: child.send_signal(signal.SIGKILL),
    "terminated": lambda child: child.send_signal(signal.SIGTERM),
    "hung up": lambda child: child.send_signal(signal.SIGHUP),
    "nothing reads any more": lambda child: child.stdout.close() if child.stdout else None,
}


@pytest.mark.parametrize("how", ENDS)
def test_the_load_ends_with_what_started_it(how: str, node: Node) -> None:
    child = node.start(PROGRAM, "3600")
    _beat(child)
    assert len(processes(node.mark)) >= 3
    ENDS[how](child)
    assert child.wait(WAIT_SECONDS) != 0
    assert left_processes(node.mark) == []
    assert list(node.home.iterdir()) == []


def test_a_driver_that_hangs_ends_with_what_started_it(node: Node) -> None:
    (node.driver / "stalls").touch()
    child = node.start(PROGRAM, "3600", CUDA_STANDIN="hang:cuInit")
    for _ in range(2):  # it hangs a second later
        _beat(child)
    child.kill()
    child.wait(WAIT_SECONDS)
    assert left_processes(node.mark) == []
