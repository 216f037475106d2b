"""The root file system that all targets share, and the tools to compare with: made once, kept in a cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import BenchError
from lab.errors import LabError
from lab.image.debian import run
from lab.image.mirror import debian_mirror

HERE = Path(__file__).parent
RELEASE = "trixie"
"""Debian 13, as the virtual rack has it, stands in for Ubuntu 24.04 / DGX OS 7."""
PACKAGES = ("openssh-server", "openssh-client", "sudo", "python3", "iproute2", "procps")
"""Packages of a node that the tools need; Ansible needs all of Python there, sparkrack and pyinfra none."""
CUSTOMIZE = HERE / "customize.sh"
REQUIREMENTS = HERE.parent / "requirements/benchmarks.lock"


def root(cache: Path, say: Callable[[str], None]) -> Path:
    """The tree, from the cache or built now (half a minute; root). Raises BenchError with what failed."""
    named = hashlib.sha256(f"{RELEASE} {PACKAGES}".encode() + CUSTOMIZE.read_bytes()).hexdigest()[:16]
    done = cache / f"root-{named}"
    if done.is_dir():
        return done
    say(f"building the root file system of the targets: Debian {RELEASE}")
    work = cache / f"root-{named}.new"
    shutil.rmtree(work, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    command = ["mmdebstrap", "--variant=minbase", "--quiet", f"--include={','.join(PACKAGES)}"]
    try:
        command += [f'--customize-hook=sh "{CUSTOMIZE}" "$1"', RELEASE, str(work), debian_mirror()]
        run(command, "building the root file system")
    except LabError as error:
        raise BenchError(str(error)) from None
    work.rename(done)
    return done


def others(cache: Path, say: Callable[[str], None]) -> Path:
    """The folder of programs of a virtual environment of its own, with Ansible, mitogen and matplotlib as they are
    locked. Raises BenchError with what failed."""
    named = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    done = cache / f"venv-{named}"
    if not (done / "ready").exists():
        say("installing what sparkrack is compared with: Ansible, mitogen (and matplotlib for the plot)")
        shutil.rmtree(done, ignore_errors=True)
        _run_pip([sys.executable, "-m", "venv", str(done)])
        pip = [str(done / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run_pip([*pip, "--require-hashes", "-r", str(REQUIREMENTS)])
        (done / "ready").touch()
    return done / "bin"


def _run_pip(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(command[:4])} failed:\n{done.stderr.strip()[-600:]}")
