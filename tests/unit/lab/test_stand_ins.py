"""What a virtual node's stand-in commands say, in the words of the real ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import rdma_standin
from lab.fake_hardware import state
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import rooted, run, stand_in

TOOLS = Path(__file__).parents[3] / "lab/image/rootfs/usr/lib/sparkrack-lab"
NAMES = ("uname", "dmidecode", "nvidia-smi", "ibdev2netdev", "lspci")
VERSION = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
asks_jq = pytest.mark.skipif(not shutil.which("jq"), reason="a node has jq, this machine has not")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder like a node's, as root sees it."""
    rack = loaded(SWITCH)
    (tmp_path / "hardware.json").write_text(json.dumps(state(rack, next(iter(rack.nodes.values())))))
    (tmp_path / "bin").mkdir()
    for name, tool in {**dict.fromkeys(NAMES, "hardware"), "ethtool": "ethtool"}.items():
        text = rooted((TOOLS / tool).read_text(), tmp_path)
        text = text.replace("/lab/hardware.json", f"{tmp_path}/hardware.json").replace("[ ! -O / ] || ", "")
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("enp1s0f1np1", "enP2p1s0f1np1", "enP7s7", "lo"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    booted = tmp_path / "run/sparkrack-lab"
    booted.mkdir(parents=True)
    (booted / "kernel").write_text("6.17.0-1021-nvidia\n")
    (booted / "driver").write_text("580.159.03\n")
    return tmp_path


@pytest.fixture
def ask(node: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    return lambda command: run(command, node)


def edited(node: Path, *path: str, value: object) -> None:
    file = node / "hardware.json"
    whole = part = json.loads(file.read_text())
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    file.write_text(json.dumps(whole))


Ask = Callable[[str], subprocess.CompletedProcess[str]]


def test_the_kernel_is_the_one_that_booted(node: Path, ask: Ask) -> None:
    assert ask("uname -r").stdout == "6.17.0-1021-nvidia\n"
    (node / "run/sparkrack-lab/kernel").unlink()
    assert ask("uname -r").stdout == subprocess.check_output(["/usr/bin/uname", "-r"], text=True)
    assert ask("uname -s").stdout == "Linux\n"


@asks_jq
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("uname -m", "aarch64"),
        ("dmidecode -s system-manufacturer", "ASUSTeK COMPUTER INC."),
        ("dmidecode -s bios-version", "GX10DGX.0105.2026"),
        (VERSION, "580.159.03"),
        ("nvidia-smi --query-gpu=name,memory.total --format=csv", "name, memory.total\nNVIDIA GB10, [N/A]"),
        (
            "ibdev2netdev",
            "roceP2p1s0f1 port 1 ==> enP2p1s0f1np1 (Down)\nrocep1s0f1 port 1 ==> enp1s0f1np1 (Down)",
        ),
    ],
)
def test_answers(ask: Ask, command: str, expected: str) -> None:
    done = ask(command)
    assert (sorted(done.stdout.splitlines()), done.stderr, done.returncode) == (sorted(expected.splitlines()), "", 0)


@asks_jq
def test_the_state_file_overrides_the_driver(node: Path, ask: Ask) -> None:
    edited(node, "gpu", "driver_version", value="595.91")
    assert ask(VERSION).stdout == "595.91\n"


@asks_jq
def test_without_a_driver_the_tool_fails(node: Path, ask: Ask) -> None:
    (node / "run/sparkrack-lab/driver").unlink()
    done = ask(VERSION)
    assert (done.stdout, done.returncode) == ("", 9)
    assert "couldn't communicate with the NVIDIA driver" in done.stderr


@asks_jq
@pytest.mark.parametrize("words", ["-s 0000:01:00.1", "-D -s 0000:01:00.1", "-s0000:01:00", "-d 15b3:", "-s 01:00.1"])
def test_a_card_and_its_link(node: Path, ask: Ask, words: str) -> None:
    edited(node, "pci", "0000:01:00.1", "width", value="x2")
    lines = ask(f"lspci -vv {words}").stdout.splitlines()
    assert lines[0] == "0000:01:00.1 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]"
    assert "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x4, ASPM not supported" in lines
    assert "\t\tLnkSta:\tSpeed 32GT/s, Width x2 (downgraded)" in lines
    both = "0000:" not in words
    assert ("\t\tLnkSta:\tSpeed 32GT/s, Width x4" in lines) == both  # the other half is whole


@asks_jq
def test_a_slot_that_is_empty_has_no_lines(ask: Ask) -> None:
    for words in ("-s 0000:01:00.0", "-s 0004:01:00.1", "-d 10de:"):
        done = ask(f"lspci -vv {words}")
        assert (done.stdout, done.returncode) == ("", 0), words


@asks_jq
def test_firmware_of_a_half(ask: Ask) -> None:
    lines = ask("ethtool -i enP2p1s0f1np1").stdout.splitlines()
    assert lines[0] == "driver: mlx5_core"
    assert "firmware-version: 28.45.4028 (NVD0000000087)" in lines
    assert "bus-info: 0002:01:00.1" in lines
    assert ask("ethtool -i enp9").returncode == 71


@asks_jq
def test_the_link_of_a_half(node: Path, ask: Ask) -> None:
    edited(node, "links", "1", value={"carrier": True, "speed": 100000, "lanes": 2, "fec": "RS", "leg": None})
    lines = ask("ethtool enp1s0f1np1").stdout.splitlines()
    assert lines[:3] == ["Settings for enp1s0f1np1:", "\tSpeed: 100000Mb/s", "\tLanes: 2"]
    assert lines[-1] == "\tLink detected: yes"
    assert ask("ethtool --show-fec enP2p1s0f1np1").stdout.splitlines()[-1] == "Active FEC encoding: RS"
    edited(node, "links", "1", value={"carrier": False, "speed": None, "lanes": 0, "fec": None, "leg": None})
    dark = ask("ethtool enp1s0f1np1").stdout.splitlines()
    assert dark[1] == "\tSpeed: Unknown!"
    assert dark[-1] == "\tLink detected: no"
    assert ask("ethtool --show-fec enp1s0f1np1").stdout.splitlines()[-1] == "Active FEC encoding: Off"
    for command in (
        "ethtool enp9",
        "ethtool enP7s7",
        "ethtool --show-fec enp1s0f0np0",
        "ethtool --phy-statistics enp1",
    ):
        assert ask(command).returncode != 0, command


@asks_jq
def test_what_a_stand_in_does_not_know_fails(ask: Ask) -> None:
    for command in ("lspci -k", "nvidia-smi -q", "dmidecode -t 45", "dmidecode -s bogus"):
        assert ask(command).returncode != 0, command


INSTALLED = """\
installed nvidia-kernel-common-580 580.159.03-0ubuntu1
installed linux-image-6.17.0-1029-nvidia 6.17.0-1029.29
installed linux-image-6.17.0-999-nvidia 6.17.0-999.1
config-files linux-image-6.17.0-1030-nvidia 6.17.0-1030.1
"""


@pytest.mark.parametrize(
    ("installed", "kernel", "driver"), [(INSTALLED, "6.17.0-1029-nvidia", "580.159.03"), ("", None, None)]
)
def test_what_booted_is_the_newest_that_is_installed(
    tmp_path: Path, installed: str, kernel: str | None, driver: str | None
) -> None:
    stand_in(tmp_path, "dpkg-query", f"cat <<'EOF'\n{installed}EOF\n")
    (tmp_path / "run").mkdir()
    done = run((TOOLS / "booted").read_text(), tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    for name, value in (("kernel", kernel), ("driver", driver)):
        file = tmp_path / "run/sparkrack-lab" / name
        assert (file.read_text().strip() if file.exists() else None) == value


def test_what_ranks_say_to_one_another_moves_the_counters_of_their_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = tmp_path / "run/sparkrack-lab/class/infiniband/rocep1s0f1/ports/1/counters"
    counters.mkdir(parents=True)
    names = ("port_xmit_data", "port_rcv_data")
    for name in names:
        (counters / name).write_text("7\n")
    at = f"sparkrack-test-{os.getpid()}"
    text = (TOOLS / "rdma-counters").read_text().replace("/run/", f"{tmp_path}/run/").replace("sparkrack-lab-rdma", at)
    monkeypatch.setattr(rdma_standin, "COUNTS", f"\0{at}")
    monkeypatch.setenv("NCCL_IB_HCA", "=rocep1s0f1,absent")
    monkeypatch.delenv("STANDIN_RDMA", raising=False)
    program = subprocess.Popen([sys.executable, "-c", text])

    def counted() -> list[int]:
        return [int((counters / name).read_text()) for name in names]

    try:
        until = time.monotonic() + 120
        while counted() == [7, 7]:
            assert time.monotonic() < until, "no counter moves"
            rdma_standin.move()
            time.sleep(0.02)
        assert (counted()[0] - 7) % rdma_standin.WORDS == 0
        assert program.poll() is None, "a device that is not there ends it"
        monkeypatch.setenv("NCCL_NET", "Socket")
        assert rdma_standin.network() == "Socket"
    finally:
        program.kill()
        program.wait()
