"""What poisons a start, or ends each one: asked once by the gate of a node, before any rank of the unit starts.

- a container of the unit's image, started as the rank's is, has the program of the engine, the files that its options
  name, and a GPU that CUDA can use;
- the kernel has logged no failure of the GPU or its driver since the boot;
- CUDA can have about as much memory as the kernel has free: what ended hard may have left memory in the driver;
- the driver is what the image asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_causes import DRIVER_FAULT, explain
from serve_gate_command import GateError, run
from serve_unit import line

CONTAINER_LIMIT = 60.0
"""Seconds that docker may take for a container that only looks around."""
CUDA_LIMIT = 30.0
"""Seconds that CUDA may take on the node."""
NO_LIBRARY = 3
"""Exit code of serve_cuda.py on a node without the library of CUDA."""
KEPT = 8 << 30
"""Bytes that CUDA may have less than the kernel has free; a context and what is in use take 1 to 2 GiB (estimated)."""
NCCL_CONF = "/etc/nccl.conf"
CUDA_PROGRAM = "/usr/local/lib/sparkrack/serve/serve_cuda.py"
LOOK = Path(__file__).with_name("look_into_image.py").read_text(encoding="utf-8")
"""The program of the container, which names its words."""
SHELL_LOOK = Path(__file__).with_name("look_into_image.sh").read_text(encoding="utf-8")
"""The same for an image of which it is not known whether it has Python: a script of sh, whose name is LOOK."""

_CONDITION = re.compile(r"(cuda|driver)(>=|<=|=|<|>)([0-9.]+)")


class StartChecks:
    """These checks of one node. `place`: of a path of the node. `remarks`: what they say without refusing."""

    def __init__(self, place: Callable[[str], str]) -> None:
        self.place = place
        self.remarks: list[str] = []

    # claim: serving.gate-container
    def check_container(self, wanted: dict[str, Any]) -> None:
        """Run one container of the image. Raises GateError with the cause and the remedy."""
        looks = list(wanted["looks"])
        if any(Path(self.place("/usr/lib")).glob("*/libcuda.so.1")):
            looks.append("cuda")
        run("docker", "rm", "--force", wanted["name"])
        script = ["-c", SHELL_LOOK, LOOK] if wanted.get("shell") else ["-c", LOOK]
        words = ["docker", "run", *wanted["docker"], wanted["image"], *script, *looks]
        try:
            code, found, errors = run(*words, limit=CONTAINER_LIMIT)
        except GateError:
            run("docker", "rm", "--force", wanted["name"])
            raise
        if code:
            why = explain(code, errors.splitlines()) or f"exit code {code}"
            raise GateError(f"no container of the image can run a rank: {why}")
        settings = [one.partition(": ")[2] for one in found.splitlines() if one.startswith(f"{NCCL_CONF}: ")]
        if settings:
            shown = line(", ".join(settings), 120)
            self.remarks.append(f"the image's {NCCL_CONF} has {shown}: the ranks get it only if env of the unit has it")

        if "nccl" in looks:
            self._check_nccl(found, wanted["nccl"])

    def _check_nccl(self, printed: str, known: list[dict[str, Any]]) -> None:
        """Compare NCCL of the image with what is known against some versions of it: that does not refuse the rank."""
        answer = re.search(r"^nccl: ([0-9]+(?:\.[0-9]+){2}) (wheel|system)$", printed, re.MULTILINE)
        if not answer:
            self.remarks.append("NCCL of the image is unknown: it does not tell its version")
            return
        shown, build = answer[1], answer[2]
        version = _split_version(shown)
        for row in known:
            inside = any(low <= version and (high is None or version < high) for low, high in row["versions"])
            if inside and row["build"] in (None, build):
                self.remarks.append(f"NCCL {shown} of the image: {row['words']}")

    def check_kernel_log(self) -> None:
        """The kernel has logged no failure of the GPU or its driver since the boot."""
        words = ("journalctl", "--dmesg", "--boot", "--output=short-iso", "--no-pager", f"--grep={DRIVER_FAULT}")
        code, found, errors = run(*words)
        faults = [one for one in found.splitlines() if re.search(DRIVER_FAULT, one)]
        # It ends with 1 where no line matches, and with 0 or 1 where it has no files. A file that a loss of power has
        # damaged is passed over, with a line about it.
        problems = [one for one in errors.splitlines() if not re.match(r"Journal file .*ignoring file|Hint: ", one)]
        if not faults and (code not in (0, 1) or problems):
            shown = line(problems[0] if problems else f"exit code {code}", 120)
            raise GateError(f"the kernel's log cannot be read: {shown}; `journalctl -k -b` must work, or use --anyway")
        if not faults:
            return
        when, _, rest = faults[-1].partition(" ")
        shown = line(rest.partition("kernel: ")[2] or rest, 100)
        what = "the GPU's driver ran out of memory" if "NV_ERR_NO_MEMORY" in rest else "the GPU or its driver failed"
        raise GateError(f"{what} at {line(when, 30)}, since this boot ({shown}); restart the node, or use --anyway")

    # claim: serving.cuda-memory
    def check_cuda(self, environment: list[str], anyway: bool) -> None:
        """CUDA reports about as much free memory as the kernel, and the driver is what the image asks for.

        Args:
            environment: of the image, as docker reports it.
            anyway: memory that the driver keeps is a remark.
        """
        code, found, errors = run(self.place(CUDA_PROGRAM), limit=CUDA_LIMIT)
        answer = re.fullmatch(r'\{"driver": (\d+), "integrated": ([01]), "free": (\d+)\}', found)
        if code or not answer:
            why = "the node has no libcuda.so.1" if code == NO_LIBRARY else _last_line(errors or found, code)
            self.remarks.append(f"CUDA's free memory is unknown: {why}")
            self._check_driver(environment, None)
            return
        driver, integrated, cuda_free = map(int, answer.groups())
        self._check_driver(environment, driver)
        if not integrated:
            return  # a GPU with memory of its own, which the kernel does not count
        memory = dict(re.findall(r"^(MemFree|MemAvailable): +(\d+) kB$", self._read_meminfo(), re.MULTILINE))
        # CUDA counts cached files as used (reported), which memory-gate has dropped just before. The lower figure is
        # that without the cache that was filled since.
        if len(memory) < 2:
            raise GateError("/proc/meminfo has no MemFree and MemAvailable; look at `free`")
        free = min(map(int, memory.values())) * 1024
        if cuda_free < free - KEPT:
            has = f"CUDA has {cuda_free / 2**30:.1f} GiB free, the kernel {free / 2**30:.1f}"
            what = f"{has}: the driver keeps memory of what ran before"
            if not anyway:
                raise GateError(f"{what}; restart the node, or use --anyway")
            self.remarks.append(what)

    def _read_meminfo(self) -> str:
        try:
            return Path(self.place("/proc/meminfo")).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise GateError(f"/proc/meminfo cannot be read: {error.strerror}; look at `free`") from None

    def _check_driver(self, environment: list[str], cuda: int | None) -> None:
        """Compare what the image asks for with the driver. `cuda`: the release that the driver has, None if unknown."""
        asked = dict(one.partition("=")[::2] for one in environment)
        required, built = asked.get("NVIDIA_REQUIRE_CUDA", ""), asked.get("CUDA_DRIVER_VERSION", "")
        if not required and not built:
            return
        code, driver, errors = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        if code or not re.fullmatch(r"[0-9.]+", driver):
            shown = line(errors or driver or f"exit code {code}", 80)
            raise GateError(f"nvidia-smi shows no version of the driver: {shown}; restart the node")
        has = {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""}
        if asked.get("NVIDIA_DISABLE_REQUIRE", "") not in ("1", "true") and not _is_requirement_satisfied(
            required, has
        ):
            shown = f"{driver} with CUDA {has['cuda']}" if cuda else driver
            raise GateError(
                f"the image asks for {line(required, 100)} (NVIDIA_REQUIRE_CUDA), the node has driver {shown}; use an "
                "image for this driver, or declare driver.version"
            )
        if built and _split_version(built)[:1] > _split_version(driver)[:1]:
            self.remarks.append(f"the image is built for driver {line(built, 20)}, the node has {driver}")


def _last_line(text: str, code: int) -> str:
    return line(text.splitlines()[-1], 80) if text else f"exit code {code}"


def _is_requirement_satisfied(required: str, has: dict[str, str]) -> bool:
    """Return whether a requirement can hold: alternatives are divided by spaces, and conditions of one by commas, as
    the NVIDIA container toolkit reads them. A condition on something else (brand, arch) is taken to hold.
    """
    return not required.split() or any(
        all(_condition_holds(condition, has) for condition in alternative.split(","))
        for alternative in required.split()
    )


def _condition_holds(condition: str, has: dict[str, str]) -> bool:
    found = _CONDITION.fullmatch(condition)
    if not found or not has[found[1]]:
        return True
    wanted, own = _split_version(found[3]), _split_version(has[found[1]])
    own = own[: len(wanted)]  # 580 is all of 580.x
    return {
        ">=": own >= wanted,
        "<=": own <= wanted,
        "=": own == wanted,
        "<": own < wanted,
        ">": own > wanted,
    }[found[2]]


def _split_version(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
