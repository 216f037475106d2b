"""What a machine lacks for a virtual rack is reported in one line, before anything is installed, built or written.

The machines that lack something are this one: with other mounts, fewer capabilities, another architecture.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab.lab import HOST_NEEDS
from sparkrack.engine.subcommands import CALL, WITHIN

CONTAINER = "a container needs --device /dev/net/tun --cap-add SYS_ADMIN --cap-add NET_ADMIN, or --privileged"
NO_TUN = f"/dev/net/tun is missing: {CONTAINER}; elsewhere `modprobe tun` makes it\n"
ARCHITECTURE = "user-mode Linux, the kernel of the virtual nodes, exists for x86-64 machines only, and this is i686\n"
I686 = ("setarch", "linux32")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and capabilities need root")


def mounted(script: str) -> tuple[str, ...]:
    """The words that run a command after a script in mounts of its own."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{script}\nexec "$@"', "mounted")


WITHOUT_TUN = mounted("mount -t tmpfs none /dev/net")
WITHOUT_DRIVER = mounted("mount -t tmpfs none /dev/net; mknod /dev/net/tun c 10 250")


def reported(*before: str, nodes: int = 0, path: Path | None = None, cache: Path | None = None) -> tuple[int, str]:
    """Exit code and output of the script on the machine that the words before it make."""
    environment = {**os.environ, **({"SPARKRACK_CACHE": str(cache)} if cache else {})}
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    command = [*before, str(HOST_NEEDS), str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


@needs_root
def test_a_machine_that_runs_virtual_racks_lacks_nothing(tmp_path: Path) -> None:
    if not Path("/dev/net/tun").exists():
        pytest.skip("this machine has no /dev/net/tun")
    assert reported(cache=tmp_path) == (0, "")


@needs_root
@pytest.mark.parametrize("capability", ["sys_admin", "net_admin"])
def test_a_container_without_a_capability(capability: str) -> None:
    code, text = reported("setpriv", f"--bounding-set=-{capability}")
    assert code == 1
    assert f"root lacks the capability SYS_ADMIN or NET_ADMIN here: {CONTAINER}\n" in text


@needs_root
def test_a_container_without_tun() -> None:
    assert reported(*WITHOUT_TUN) == (1, NO_TUN)


@needs_root
def test_a_tun_without_a_driver() -> None:
    assert reported(*WITHOUT_DRIVER) == (1, NO_TUN.replace("is missing", "does not open (No such device)"))


def test_another_architecture() -> None:
    assert reported(*I686) == (2, ARCHITECTURE)


def test_another_system(tmp_path: Path) -> None:
    (tmp_path / "uname").write_text("#!/bin/sh\necho Darwin\n")
    (tmp_path / "uname").chmod(0o755)
    assert reported(path=tmp_path) == (2, "the virtual rack runs on Linux only, and this is Darwin\n")


def test_too_little_memory() -> None:
    code, text = reported(nodes=1_000_000)
    assert code == 1
    assert "1000000 nodes need about 700000000 MB of memory, this machine has " in text


@needs_root
def test_too_little_disk_for_the_build_and_enough_when_it_is_built(tmp_path: Path) -> None:
    cache = tmp_path / "new/cache"
    small = mounted(f"mount -t tmpfs -o size=100m none {tmp_path}; mkdir {tmp_path}/new")
    code, text = reported(*small, cache=cache)
    said = (
        f"kernel and image need 3000 MB of disk while they are built, {tmp_path}/new has 100 MB; "
        "SPARKRACK_CACHE names another folder\n"
    )
    assert (code, text) == (1, said)
    built = mounted(f"mount -t tmpfs -o size=100m none {tmp_path}; mkdir -p {cache}/lab/image-0123456789abcdef")
    assert reported(*built, cache=cache) == (0, "")


@needs_root
@pytest.mark.parametrize(
    ("machine", "said"), [(WITHOUT_TUN, NO_TUN), (I686, ARCHITECTURE)], ids=["without tun", "i686"]
)
def test_lab_up_says_it_and_writes_nothing(tmp_path: Path, machine: tuple[str, ...], said: str) -> None:
    environment = {**os.environ, "SPARKRACK_CACHE": str(tmp_path / "cache"), "SPARKRACK_LAB": str(tmp_path / ".lab")}
    environment.pop(WITHIN)  # the next step is printed
    command = [*machine, *CALL, "lab", "up"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 1
    following = "" if said == ARCHITECTURE else "Next, when this is fixed: sparkrack lab up\n"
    assert done.stderr == f"{said}{following}"
    assert list(tmp_path.iterdir()) == []
