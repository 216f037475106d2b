"""What poisons a start, or ends each one, is asked before it: on a node in a folder, with the thing broken."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import FOLDER, serve_causes, serve_gate_command, serve_start
from tests.serving.test_gate import CUDA, IMAGE, START_STAND_INS, GateNode

TOGETHER = ("--together",)
ALONE: dict[str, Any] = {"proof": None}
GIB = 1 << 30
LIBRARY = """
#include <stddef.h>
static int initialized, current;
int cuInit(unsigned flags) { initialized = 1; return flags ? 1 : INIT; }
int cuDriverGetVersion(int *version) { *version = 13000; return VERSION; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int number) { *device = 7; return number || !initialized; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 18; return device != 7; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return device != 7; }
int cuCtxSetCurrent(void *context) { current = 1; return context != (void *)1; }
int MEMORY(size_t *free, size_t *total) { *free = 5ul << 32; *total = 6ul << 32; return !current; }
int cuGetErrorName(int code, const char **name) { *name = code == 5 ? 0 : "CUDA_ERROR_OF_TEST"; return 0; }
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateNode:
    made = GateNode(tmp_path)
    monkeypatch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return made


def meminfo(node: GateNode, free: int, available: int) -> None:
    rows = {"MemTotal:      ": 128, "MemFree:": free, "MemAvailable:": available}
    node.file("proc/meminfo", "".join(f"{name} {gib << 20} kB\n" for name, gib in rows.items()))


def cuda(node: GateNode, free: int, integrated: int = 1, driver: int = 13000) -> None:
    answer = json.dumps({"driver": driver, "integrated": integrated, "free": free * GIB})
    node.command(CUDA, f"echo '{answer}'")


def docker(node: GateNode, run: str, environment: list[str] | None = None) -> None:
    node.command("docker", f"case $1 in image) echo '{IMAGE} {json.dumps(environment)}' ;; run) {run} ;; esac")


# The container


def test_a_container_as_the_rank_s_is_runs_once_before_a_start(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"
    calls = node.calls("docker")
    place = calls.index("rm --force sparkrack-qwen-gate")
    wanted = f'run --rm --name sparkrack-qwen-gate --gpus all --entrypoint python3 {IMAGE} -c """What runs'
    assert calls[place + 1].startswith(wanted)
    node.calls_file.unlink()
    assert node.gate(capsys) == "ready"
    assert not any(call.startswith("run ") for call in node.calls("docker"))


def test_settings_of_nccl_in_the_image_are_a_remark(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    docker(node, "echo 'noise'; echo '/etc/nccl.conf: NCCL_IB_USE_INLINE=1'; echo '/etc/nccl.conf: NCCL_ALGO=Ring'")
    assert node.gate(capsys, *TOGETHER, **ALONE) == (
        "ready; the image's /etc/nccl.conf has NCCL_IB_USE_INLINE=1, NCCL_ALGO=Ring: the ranks get it only if env of "
        "the unit has it"
    )


@pytest.mark.parametrize("script", [serve_start.LOOK, serve_start.SHELL_LOOK])
def test_the_container_prints_the_lines_of_a_file_of_the_image(script: str, tmp_path: Path) -> None:
    file = tmp_path / "nccl.conf"
    file.write_text("# comment\nNCCL_IB_USE_INLINE=1\n\nNCCL_ALGO=Ring")
    program = [sys.executable, "-c", script] if script == serve_start.LOOK else ["sh", "-c", script, "look"]
    words = [f"settings:{tmp_path}/none", f"settings:{file}"]
    found = subprocess.run([*program, *words], capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == [f"{file}: NCCL_IB_USE_INLINE=1", f"{file}: NCCL_ALGO=Ring"]


KNOWN = [{"versions": [[[2, 0, 0], [2, 30, 0]]], "build": None, "words": "a ring does not start (nccl.ring)"}]
WHEEL = [{"versions": [[[2, 28, 9], [2, 28, 10]]], "build": "wheel", "words": "two ranks spin (nccl.wheel)"}]


@pytest.mark.parametrize(
    ("printed", "known", "remark"),
    [
        ("nccl: 2.28.9 system", KNOWN, "; NCCL 2.28.9 of the image: a ring does not start (nccl.ring)"),
        ("nccl: 2.30.7 wheel", KNOWN, ""),
        ("nccl: 2.28.9 wheel", WHEEL, "; NCCL 2.28.9 of the image: two ranks spin (nccl.wheel)"),
        ("nccl: 2.28.9 system", WHEEL, ""),
        ("nccl: -1.99.99 wheel", KNOWN, "; NCCL of the image is unknown: it does not tell its version"),
        ("", KNOWN, "; NCCL of the image is unknown: it does not tell its version"),
    ],
)
def test_what_is_known_against_nccl_of_the_image_is_a_remark_before_the_start(
    node: GateNode, capsys: pytest.CaptureFixture[str], printed: str, known: list[Any], remark: str
) -> None:
    docker(node, f"echo '{printed}'")
    container = {"name": "sparkrack-qwen-gate", "docker": [], "image": IMAGE, "looks": ["nccl"], "nccl": known}
    assert node.gate(capsys, *TOGETHER, **ALONE, container=container) == f"ready{remark}"


def test_an_image_whose_python_has_no_ctypes_can_run_a_rank(tmp_path: Path) -> None:
    """Its NCCL is unknown. A stand-in of the virtual rack is such an image: libffi is not there."""
    (tmp_path / "ctypes.py").write_text("raise ImportError('libffi.so.8: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, "-S", "-c", serve_start.LOOK, "nccl"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("build", ["wheel", "none"])
def test_the_container_prints_the_number_of_its_nccl(build: str, tmp_path: Path) -> None:
    library = tmp_path / "nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    if build == "wheel":
        source = tmp_path / "nccl.c"
        source.write_text("int ncclGetVersion(int *version) { *version = 22809; return 0; }")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    done = subprocess.run(
        [sys.executable, "-S", "-c", serve_start.LOOK, "nccl"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout == ("nccl: 2.28.9 wheel\n" if build == "wheel" else "")


def test_a_gpu_is_asked_for_in_the_container_of_a_node_that_has_cuda(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"
    assert "program:vllm cuda" not in node.calls_file.read_text()
    node.file("usr/lib/aarch64-linux-gnu/libcuda.so.1", "")
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"
    assert "program:vllm cuda" in node.calls_file.read_text()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'docker: unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown' >&2; exit 125",
            (
                "docker gave the container no GPU (unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown); "
                "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
            ),
        ),
        (
            "echo 'the image has no program ray' >&2; exit 1",
            (
                "the image does not have the program of the engine (the image has no program ray); use an image that "
                "has it; vllm-ray needs one with Ray"
            ),
        ),
        (
            "echo 'CUDA answers 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)' >&2; exit 1",
            (
                "the image wants another driver than the node has (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)); use an image "
                "for this driver, or declare driver.version"
            ),
        ),
        ("exit 9", "exit code 9"),
    ],
)
def test_a_container_that_fails_is_the_reason(
    node: GateNode, capsys: pytest.CaptureFixture[str], script: str, reason: str
) -> None:
    docker(node, script)
    assert node.gate(capsys, *TOGETHER, **ALONE) == f"no container of the image can run a rank: {reason}"
    assert node.calls("memory-gate") == []


@pytest.mark.parametrize(
    ("server", "looks", "reason"),
    [
        ("echo 'Available devices:'; echo '  CUDA0: NVIDIA GB10 (122 GiB)'", "devices:llama-server", ""),
        (
            "echo 'Available devices:'; echo '  CPU: Cortex-X925'",
            "devices:llama-server",
            "llama-server --list-devices names no CUDA0: it would compute on the CPU",
        ),
        ("exit 127", "devices:llama-server", "llama-server --list-devices names no CUDA0: it would compute on the CPU"),
        ("", "program:llama-server", ""),
        ("", "program:no-such-server", "the image has no program no-such-server"),
        ("", "file:/no/such/file", "the container has no file /no/such/file"),
        ("", "file:/", ""),
    ],
)
def test_an_image_without_python_is_looked_into_by_a_shell(
    node: GateNode, server: str, looks: str, reason: str
) -> None:
    node.command("llama-server", server)
    found = subprocess.run(
        ["sh", "-c", serve_start.SHELL_LOOK, serve_start.LOOK, "file:/", looks],
        env={"PATH": serve_gate_command.ENVIRONMENT["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (found.stderr.strip(), found.returncode) == (reason, 1 if reason else 0)


def test_cuda_is_asked_for_where_that_image_has_python_after_all(node: GateNode) -> None:
    node.command("python3", 'echo "python $*" >&2; exit 7')
    found = subprocess.run(
        ["sh", "-c", serve_start.SHELL_LOOK, "TEXT", "file:/", "cuda"],
        env={"PATH": serve_gate_command.ENVIRONMENT["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stderr) == (7, "python -c TEXT cuda\n")


def test_the_gate_hands_that_shell_its_script(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    docker(node, "echo 'llama-server --list-devices names no CUDA0: it would compute on the CPU' >&2; exit 1")
    wanted: dict[str, Any] = {"name": "sparkrack-qwen-gate", "docker": ["--rm"], "image": IMAGE, "looks": []}
    wanted["shell"] = True
    assert node.gate(capsys, *TOGETHER, container=wanted, **ALONE) == (
        "no container of the image can run a rank: the engine of the image was built without CUDA, and would compute "
        "on the CPU (--list-devices names no CUDA0: it would compute on the CPU); use an image with its CUDA "
        "backend for arm64"
    )
    assert f"run --rm {IMAGE} -c #!/bin/sh" in node.calls_file.read_text()


def test_a_container_that_hangs_is_removed(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_start, "CONTAINER_LIMIT", 0.5)
    docker(node, "exec sleep 600")
    assert "has not answered within 0.5 s" in node.gate(capsys, *TOGETHER, **ALONE)
    assert node.calls("docker")[-1] == "rm --force sparkrack-qwen-gate"


def look(*words: str, **environment: str) -> tuple[int, str]:
    """Run the program of the container."""
    command = [sys.executable, "-c", serve_start.LOOK, *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stderr.strip()


def test_the_program_of_the_container_finds_what_is_missing() -> None:
    assert look("program:sh", "module:json", "file:/usr", "program:env") == (0, "")
    assert look("program:sh", "program:no-ray") == (1, "the image has no program no-ray")
    assert look("module:no_sglang") == (1, "the image has no module no_sglang")
    assert look("file:/models/qwen/t.jinja") == (1, "the container has no file /models/qwen/t.jinja")


@pytest.fixture
def library(tmp_path: Path) -> Any:
    """Return a function that builds a libcuda.so.1 which answers so, and returns the environment that finds it."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler is installed")

    def build(init: int = 0, count: int = 1, version: int = 0, memory: str = "cuMemGetInfo_v2") -> dict[str, str]:
        text = LIBRARY.replace("INIT", str(init)).replace("COUNT", str(count)).replace("VERSION", str(version))
        (tmp_path / "cuda.c").write_text(text.replace("MEMORY", memory))
        words = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
        subprocess.run(words, check=True)
        return {"LD_LIBRARY_PATH": str(tmp_path)}

    return build


def test_the_program_of_the_container_asks_cuda(library: Any) -> None:
    assert look("cuda", **library()) == (0, "")
    assert look("cuda", **library(init=803)) == (1, "CUDA answers 803 (CUDA_ERROR_OF_TEST)")
    assert look("cuda", **library(init=5)) == (1, "CUDA answers 5 (unknown)")
    assert look("cuda", **library(count=0)) == (1, "CUDA shows no GPU")


def test_the_program_of_the_node_reports_what_cuda_has(library: Any) -> None:
    command = [sys.executable, "-B", str(FOLDER / "serve_cuda.py")]

    def ask(**environment: str) -> tuple[int, str]:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        return done.returncode, done.stdout + done.stderr

    assert ask(**library()) == (0, '{"driver": 13000, "integrated": 1, "free": 21474836480}\n')
    assert ask(**library(init=999)) == (1, "cuInit fails with 999 (CUDA_ERROR_OF_TEST)\n")
    assert ask(**library(version=5)) == (1, "cuDriverGetVersion fails with 5 (unknown)\n")
    code, reported = ask(**library(memory="cuMemGetInfo"))
    assert (code, "cuMemGetInfo_v2" in reported) == (1, True)


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has the library of CUDA")
def test_the_program_of_a_node_without_the_library_of_cuda_says_so_by_its_exit_code() -> None:
    command = [sys.executable, "-B", str(FOLDER / "serve_cuda.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (serve_start.NO_LIBRARY, "")
    assert "libcuda.so.1" in done.stderr
    assert look("cuda") == (1, "the container has no libcuda.so.1: its runtime gave it no driver")


# The kernel's log

NO_MEMORY = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _mem"


def test_a_driver_that_has_failed_since_the_boot_is_refused(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.command("journalctl", f"echo '2026-11-23T21:18:04+0000 spark1 kernel: {NO_MEMORY}'")
    assert node.gate(capsys, *TOGETHER, **ALONE) == (
        f"the GPU's driver ran out of memory at 2026-11-23T21:18:04+0000, since this boot ({NO_MEMORY[:97]}...); "
        "restart the node, or use --anyway"
    )
    assert node.calls("journalctl") == [
        f"--dmesg --boot --output=short-iso --no-pager --grep={serve_causes.DRIVER_FAULT}"
    ]
    assert not any(call.startswith("run ") for call in node.calls("docker"))
    assert node.gate(capsys, *TOGETHER, "--anyway", **ALONE) == "ready"
    assert node.gate(capsys) == "ready", "the gate before the rank itself asks for it no more"


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "echo '2026-11-23T21:18:04+0000 spark1 kernel: NVRM: Xid (PCI:000f:01:00): 45, pid=7, Ch 00000008'",
        "echo 'Journal file /var/log/journal/1/system@2.journal~ is truncated, ignoring file.' >&2; exit 1",
        "echo 'Hint: You are currently not seeing messages from other users and the system.' >&2; exit 1",
    ],
)
def test_a_kernel_log_without_such_a_line_is_no_reason(
    node: GateNode, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    node.command("journalctl", script)
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("exit 2", "exit code 2"),
        ("echo 'Compiled without pattern matching support' >&2; exit 1", "Compiled without pattern matching support"),
        ("echo 'Hint: x' >&2; echo 'Failed to open' >&2; exit 0", "Failed to open"),
        (f"echo {'x' * 200} >&2; exit 1", f"{'x' * 117}..."),
    ],
)
def test_a_kernel_log_that_cannot_be_read_is_refused(
    node: GateNode, capsys: pytest.CaptureFixture[str], script: str, shown: str
) -> None:
    node.command("journalctl", script)
    reason = f"the kernel's log cannot be read: {shown}; `journalctl -k -b` must work, or use --anyway"
    assert node.gate(capsys, *TOGETHER, **ALONE) == reason


def test_the_last_failure_of_the_gpu_is_reported_also_where_a_file_of_the_journal_is_lost(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        f"2026-11-23T20:00:00+0000 spark1 kernel: {NO_MEMORY}",
        "2026-11-23T21:00:00+0000 NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.",
    )
    node.command("journalctl", f"echo '{rows[0]}'; echo '{rows[1]}'; echo 'Failed to open' >&2; exit 1")
    assert node.gate(capsys, *TOGETHER, **ALONE) == (
        "the GPU or its driver failed at 2026-11-23T21:00:00+0000, since this boot (NVRM: Xid (PCI:000f:01:00): 79, "
        "GPU has fallen off the bus.); restart the node, or use --anyway"
    )


BOOT = "0123456789abcdef" * 2
JOURNAL_REMOTE = Path("/lib/systemd/systemd-journal-remote")


@pytest.mark.skipif(not JOURNAL_REMOTE.exists(), reason="systemd-journal-remote is not installed")
@pytest.mark.parametrize(
    ("logged", "found"),
    [
        (NO_MEMORY, True),
        ("NVRM: Xid (PCI:000f:01:00): 79, pid=7, GPU has fallen off the bus.", True),
        ("NVRM: Xid (PCI:000f:01:00): 45, pid=7, Ch 00000008", False),
        ("NVRM: Xid (PCI:000f:01:00): 43, pid=7, Ch 00000008", False),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module", False),
    ],
)
def test_the_real_journalctl_finds_the_same_lines(
    node: GateNode, capsys: pytest.CaptureFixture[str], logged: str, found: bool
) -> None:
    times = f"__REALTIME_TIMESTAMP=1700000000000000\n__MONOTONIC_TIMESTAMP=1\n_BOOT_ID={BOOT}"
    entry = f"{times}\n_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\n_HOSTNAME=spark1\nMESSAGE={logged}\n\n"
    journal = node.root / "kernel.journal"
    words = [str(JOURNAL_REMOTE), f"--output={journal}", "-"]
    subprocess.run(words, input=entry, text=True, check=True, capture_output=True)
    node.command("journalctl", f'exec /usr/bin/journalctl --file={journal} "$@" --boot={BOOT}')
    reason = node.gate(capsys, *TOGETHER, **ALONE)
    assert (" since this boot " in reason) == found, reason
    if found:
        assert logged[:90] in reason
        assert " at 2023-11-1" in reason
    else:
        assert reason == "ready"


# CUDA's free memory


def test_memory_that_the_driver_keeps_is_refused(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    """It is kept from more than 8 GiB on."""
    meminfo(node, 101, 100)
    cuda(node, 91)
    kept = "CUDA has 91.0 GiB free, the kernel 100.0: the driver keeps memory of what ran before"
    assert node.gate(capsys, *TOGETHER, **ALONE) == f"{kept}; restart the node, or use --anyway"
    assert node.gate(capsys, *TOGETHER, "--anyway", **ALONE) == f"ready; {kept}"
    assert node.gate(capsys) == "ready"


@pytest.mark.parametrize(
    ("free", "available", "cuda_free", "integrated"),
    [(100, 101, 92, 1), (40, 101, 40, 1), (100, 101, 79, 0)],
    ids=["a context and the engine's own", "cached files, which CUDA counts as used", "a GPU with its own memory"],
)
def test_memory_that_is_in_use_or_cached_is_no_reason(
    node: GateNode,
    capsys: pytest.CaptureFixture[str],
    free: int,
    available: int,
    cuda_free: int,
    integrated: int,
) -> None:
    meminfo(node, free, available)
    cuda(node, cuda_free, integrated)
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'libcuda.so.1: cannot open shared object file' >&2; exit 3", "the node has no libcuda.so.1"),
        ("echo nothing", "nothing"),
        ("exit 7", "exit code 7"),
        ("echo first >&2; echo last >&2; exit 1", "last"),
        (f"{START_STAND_INS[CUDA]}; echo late >&2; exit 1", "late"),
        (f"echo {'x' * 100}; exit 1", f"{'x' * 77}..."),
    ],
)
def test_what_cuda_does_not_report_is_a_remark_and_no_refusal(
    node: GateNode, capsys: pytest.CaptureFixture[str], script: str, why: str
) -> None:
    node.command(CUDA, script)
    assert node.gate(capsys, *TOGETHER, **ALONE) == f"ready; CUDA's free memory is unknown: {why}"


def test_a_cuda_that_hangs_is_refused(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_start, "CUDA_LIMIT", 0.5)
    node.command(CUDA, "exec sleep 600")
    assert node.gate(capsys, *TOGETHER, **ALONE).endswith("has not answered within 0.5 s; restart the node")


# The driver that the image asks for


@pytest.mark.parametrize(
    ("required", "accepted"),
    [
        ("cuda>=13.0", True),
        ("cuda>=13.2 driver>=590", False),
        ("cuda>=13.2 driver>=580,driver<581", True),
        ("cuda>=13.2 driver>=535,driver<536", False),
        ("cuda>=13.2 brand=tesla,driver>=535,driver<536 brand=unknown,driver>=580,driver<581", True),
        ("driver>=580.160", False),
        ("arch=sm_121", True),
        ("driver=590", False),
        ("driver=580.159.3", True),
        ("driver<=580", True),
        ("driver<=579", False),
        ("driver>579", True),
        ("driver>580", False),
        ("driver<581", True),
        ("driver<580", False),
        ("cuda<=13.0", True),
        ("cuda<=12.9", False),
    ],
)
def test_an_image_for_another_driver_is_refused(
    node: GateNode, capsys: pytest.CaptureFixture[str], required: str, accepted: bool
) -> None:
    docker(node, ":", [f"NVIDIA_REQUIRE_CUDA={required}"])
    node.command("nvidia-smi", "case $1 in *driver*) echo 580.159.03 ;; *pstate*) echo 'P8, 208, Active' ;; esac")
    expected = (
        f"the image asks for {required} (NVIDIA_REQUIRE_CUDA), the node has driver 580.159.03 with CUDA 13.0; use an "
        "image for this driver, or declare driver.version"
    )
    assert node.gate(capsys, *TOGETHER, **ALONE) == ("ready" if accepted else expected)


def test_an_image_that_is_built_for_a_later_driver_is_a_remark(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """NVIDIA's images require cuda>=9.0 and say in CUDA_DRIVER_VERSION what they are built for."""
    node.command("nvidia-smi", "case $1 in *driver*) echo 580.159.03 ;; *pstate*) echo 'P8, 208, Active' ;; esac")
    docker(node, ":", ["NVIDIA_REQUIRE_CUDA=cuda>=9.0", "CUDA_DRIVER_VERSION=590.48.01"])
    reported = "ready; the image is built for driver 590.48.01, the node has 580.159.03"
    assert node.gate(capsys, *TOGETHER, **ALONE) == reported
    docker(node, ":", ["CUDA_DRIVER_VERSION=580.200.05"])
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"
    assert node.calls("nvidia-smi").count("--query-gpu=driver_version --format=csv,noheader") == 2


def test_an_image_that_asks_for_no_driver_needs_no_answer_of_nvidia_smi(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    docker(node, ":", ["PATH=/usr/bin", "CUDA_VERSION=13.0"])
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"
    assert not any("driver_version" in call for call in node.calls("nvidia-smi"))


@pytest.mark.parametrize(
    ("environment", "refused"), [([], True), (["1"], False), (["true"], False), (["0"], True), (["false"], True)]
)
def test_an_image_may_switch_off_what_it_asks_for(
    node: GateNode, capsys: pytest.CaptureFixture[str], environment: list[str], refused: bool
) -> None:
    node.command("nvidia-smi", "case $1 in *driver*) echo 580.159.03 ;; *pstate*) echo 'P8, 208, Active' ;; esac")
    disabled = [f"NVIDIA_DISABLE_REQUIRE={value}" for value in environment]
    docker(node, ":", ["NVIDIA_REQUIRE_CUDA=cuda>=14.0", *disabled])
    assert node.gate(capsys, *TOGETHER, **ALONE).startswith("the image asks for cuda>=14.0 ") == refused


def test_the_minor_release_of_cuda_counts(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.command("nvidia-smi", "case $1 in *driver*) echo 590.44 ;; *pstate*) echo 'P8, 208, Active' ;; esac")
    cuda(node, 1, integrated=0, driver=13020)
    docker(node, ":", ["NVIDIA_REQUIRE_CUDA=cuda>=13.2"])
    assert node.gate(capsys, *TOGETHER, **ALONE) == "ready"
    docker(node, ":", ["NVIDIA_REQUIRE_CUDA=cuda>=13.3"])
    assert "has driver 590.44 with CUDA 13.2; use" in node.gate(capsys, *TOGETHER, **ALONE)


def test_a_driver_is_compared_with_what_the_image_asks_for_also_where_cuda_does_not_answer(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.command("nvidia-smi", "case $1 in *driver*) echo 580.159.03 ;; *pstate*) echo 'P8, 208, Active' ;; esac")
    node.command(CUDA, "exit 3")
    docker(node, ":", ["NVIDIA_REQUIRE_CUDA=cuda>=99,driver>=590"])
    assert node.gate(capsys, *TOGETHER, **ALONE) == (
        "the image asks for cuda>=99,driver>=590 (NVIDIA_REQUIRE_CUDA), the node has driver 580.159.03; use an image "
        "for this driver, or declare driver.version"
    )
    docker(node, ":", ["NVIDIA_REQUIRE_CUDA=cuda>=99"])
    assert node.gate(capsys, *TOGETHER, **ALONE).startswith("ready; ")
