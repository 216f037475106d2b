"""scripts/setup on machines that are not ready: another package manager runs, there is no dpkg, there is no rack."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.apt_machine import AptMachine

SETUP = Path(__file__).parents[2] / "scripts/setup"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="set-up would ask sudo")


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def environment(programs: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **more}


@needs_root
@pytest.mark.parametrize("lock", ["state/lists/lock", "lock-frontend"])
def test_set_up_waits_for_another_package_manager_and_says_so(tmp_path: Path, lock: str) -> None:
    """The real apt in a folder: its repository lacks the package, which set-up learns when the lock is released."""
    machine = AptMachine(tmp_path / "machine")
    machine.publish("Debian")
    machine.use(f"file://{machine.repository}")
    program(tmp_path / "bin", "dpkg-query", 'case $* in *" make") echo not installed ;; *) echo ok installed ;; esac')
    own = environment(tmp_path / "bin", APT_CONFIG=str(machine.configuration))
    with (machine.folder / lock).open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        with subprocess.Popen([SETUP, "lint"], env=own, text=True, stdout=-1, stderr=subprocess.PIPE) as setup:
            assert setup.stdout
            assert setup.stderr
            assert setup.stdout.readline() == "setup: installing make\n"
            assert setup.stdout.readline() == (
                "setup: waiting up to 300 s for another package manager: E: Could not get lock "
                f"{machine.folder}/{lock}. It is held by process {os.getpid()} (python)\n"
            ).replace("(python)", f"({Path('/proc/self/comm').read_text().strip()})")
            fcntl.lockf(held, fcntl.LOCK_UN)
            assert setup.stderr.read() == "E: Unable to locate package make\n"
            assert setup.stdout.read() == ""
    assert setup.returncode == 1


@needs_root
def test_set_up_for_tests_installs_no_package_that_starts_a_service(tmp_path: Path) -> None:
    """No package is installed and no command is there; apt-get is one that shows what it is to install."""
    program(tmp_path / "bin", "dpkg-query", "exit 1")
    program(tmp_path / "bin", "apt-get", 'case $* in *install*) echo "$*" >&2; exit 1 ;; esac')
    without = '[ ! -e /usr/sbin/nginx ] || mount --bind /dev/null /usr/sbin/nginx; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", without, "sh", str(SETUP), "tests"]
    done = subprocess.run(command, env=environment(tmp_path / "bin"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    words = done.stderr.splitlines()[-1].partition("--no-install-recommends ")[2].split()
    assert {"python3-venv", "mmdebstrap", "gcc", "graphviz"} <= set(words)
    unpacked = {"nginx", "prometheus", "prometheus-alertmanager", "cloud-init", "grub2-common", "kdump-tools"}
    assert not (unpacked | {"openssh-server", "rsync"}) & set(words)


def test_linters_need_four_packages(tmp_path: Path) -> None:
    program(tmp_path / "bin", "dpkg-query", "exit 1")
    program(tmp_path / "bin", "sudo", 'exec "$@"')
    program(tmp_path / "bin", "apt-get", 'case $* in *install*) echo "$*" >&2; exit 1 ;; esac')
    done = subprocess.run(
        [SETUP, "lint"], env=environment(tmp_path / "bin"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "-qq install -y --no-install-recommends python3 python3-venv make ca-certificates\n"


@pytest.mark.parametrize("word", ["", "demo", "tests"])
def test_set_up_says_what_a_virtual_rack_lacks_and_for_the_demo_it_installs_nothing(tmp_path: Path, word: str) -> None:
    program(tmp_path / "bin", "dpkg-query", "exit 1")
    program(tmp_path / "bin", "sudo", 'exec "$@"')
    program(tmp_path / "bin", "apt-get", 'echo "apt-get was called" >&2; exit 1')
    command = ["setarch", "linux32", str(SETUP), *word.split()]
    done = subprocess.run(command, env=environment(tmp_path / "bin"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    first, *others = done.stderr.splitlines()
    assert first == (
        "setup: no virtual rack on this machine: user-mode Linux, the kernel of the virtual nodes, exists for x86-64 "
        "machines only, and this is i686"
    )
    assert others == ([] if word == "demo" else ["apt-get was called"])


def test_a_system_without_dpkg_is_reported_of_pip_and_uv(tmp_path: Path) -> None:
    """Every program of this machine but those of Debian's packages."""
    for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        for path in Path(folder).iterdir():
            link = tmp_path / path.name
            if not path.name.startswith(("apt", "dpkg")) and not link.is_symlink():
                link.symlink_to(path)
    own = {**os.environ, "PATH": str(tmp_path), "NODES": "0"}
    done = subprocess.run([SETUP], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "setup: this is not a Debian or Ubuntu; `pip install .` or `uv tool install .` installs sparkrack for a rack "
        "of hardware (it needs Python 3.11 or later, ssh and git); the virtual rack and the tests need Debian's "
        "packages: "
    )
    assert " mmdebstrap " in said
