"""/etc/nccl.conf, limits on pinned memory, and ARP."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.rdma import desired
from tests.unit.model.racks import SWITCH, TAGGED, changed, loaded

RACK = loaded(SWITCH)
NODE = RACK.nodes["spark1"]
_STRTOLL = ctypes.CDLL(None).strtoll
_STRTOLL.restype = ctypes.c_longlong


def disabled(conf: bytes) -> bool:
    """Whether NCCL would find RDMA disabled in a line of this file: its own way to read it, with the C library."""
    for line in conf.split(b"\n"):
        if line.startswith(b"#"):
            continue
        name, equals, value = line.partition(b"\0")[0].partition(b"=")
        if equals and name == b"NCCL_IB_DISABLE" and value and _STRTOLL(ctypes.c_char_p(value), None, 0) != 0:
            return True
    return False


@pytest.mark.parametrize("value", ["1", " 1", "\t1", "01", "0x1", "0X0f", "+1", "-1", "10", "1abc", "1 # on", "1\r"])
def test_what_disables_is_commented_out(value: str) -> None:
    conf = f"A=1\r\nNCCL_IB_DISABLE={value}\nB".encode()
    assert disabled(conf)
    assert desired.with_rdma(conf) == f"A=1\r\n#sparkrack: RDMA stays on# NCCL_IB_DISABLE={value}\nB".encode()


@pytest.mark.parametrize(
    "conf",
    [
        b"",
        b"NCCL_IB_DISABLE=0\n",
        b"NCCL_IB_DISABLE=\n",
        b"NCCL_IB_DISABLE=00x1\n",
        b"NCCL_IB_DISABLE=08\n",
        b"NCCL_IB_DISABLE=yes\n",
        b"NCCL_IB_DISABLE =1\n",
        b" NCCL_IB_DISABLE=1\n",
        b"#NCCL_IB_DISABLE=1\n",
        b"nccl_ib_disable=1\n",
        b"NCCL_IB_DISABLE\n",
        b"X\rNCCL_IB_DISABLE=1\n",
        b"\xff\xfe\n",
    ],
)
def test_what_does_not_disable_keeps_every_byte(conf: bytes) -> None:
    assert not disabled(conf)
    assert desired.with_rdma(conf) == conf


LINES = st.lists(
    st.one_of(
        st.builds(
            lambda *parts: "".join(parts).encode(),
            st.sampled_from(["", "#", " "]),
            st.sampled_from(["NCCL_IB_DISABLE", "NCCL_DEBUG"]),
            st.sampled_from(["=", " =", ""]),
            st.text("0123456789abcxX +-\t\r\v\f#", max_size=6),
        ),
        st.binary(max_size=12),
    ),
    max_size=5,
).map(b"\n".join)


@given(LINES)
def test_afterwards_nothing_disables_and_nothing_else_changed(conf: bytes) -> None:
    after = desired.with_rdma(conf)
    assert not disabled(after)
    assert after.replace(desired.OFF, b"") == conf.replace(desired.OFF, b"")
    assert desired.with_rdma(after) == after
    assert disabled(conf) or after == conf


def test_limits_are_for_the_user_and_root() -> None:
    lines = desired.limits(RACK).content.decode().splitlines()[1:]
    assert lines == ["ops - memlock unlimited", "root - memlock unlimited"]
    only = loaded(changed(SWITCH, ("user: ops", "hardening: false\n  user: root")))
    assert desired.limits(only).content.decode().splitlines()[1:] == ["root - memlock unlimited"]


LATE = "/etc/security/limits.d/99-x.conf"


@pytest.mark.parametrize(
    ("line", "wins"),
    [
        (f"{LATE}:ops - memlock 64", True),
        (f"{LATE}:root\tsoft\tmemlock\t0", True),
        (f"{LATE}:  ops hard memlock 65536 # why", True),
        (f"{LATE}:ops - memlock unlimited", False),
        (f"{LATE}:ops - memlock -1", False),
        (f"{LATE}:* - memlock 64", False),
        (f"{LATE}:@users - memlock 64", False),
        (f"{LATE}:other - memlock 64", False),
        (f"{LATE}:#ops - memlock 64", False),
        (f"{LATE}:ops - nofile 64 # memlock", False),
        ("/etc/security/limits.d/10-x.conf:ops - memlock 64", False),
        (f"{desired.LIMITS}:ops - memlock 64", False),
        ("", False),
    ],
)
def test_whose_limit_wins(line: str, wins: bool) -> None:
    assert bool(desired.outlimited(line, RACK)) == wins


@pytest.mark.parametrize("reported", ["", "\n", "many", "-1", "8M"])
def test_a_limit_that_is_none(reported: str) -> None:
    with pytest.raises(ValueError, match="DefaultLimitMEMLOCK: unexpected probe output"):
        desired.default_limit(reported)


def test_sysctl_reads_the_drop_in(tmp_path: Path) -> None:
    """A line that sysctl cannot parse is skipped with a complaint, so its own parser has the last word."""
    file = tmp_path / "x.conf"
    file.write_bytes(desired.arp_dropin(RACK, NODE).content)
    done = subprocess.run(["sysctl", "--dry-run", "-p", str(file)], capture_output=True, text=True)
    if "--dry-run" in done.stderr:
        pytest.skip("this sysctl knows no --dry-run")
    reported = dict(line.split(" = ") for line in done.stdout.splitlines())
    wanted = desired.sysctls(RACK, NODE)
    shared = {key: value for key, value in wanted.items() if ".all." in key or ".default." in key}
    assert shared.items() <= reported.items() <= wanted.items()  # this machine has no such interface
    assert all("cannot stat" in line for line in done.stderr.splitlines()), done.stderr


def test_vlans_have_settings_too() -> None:
    rack = loaded(TAGGED)
    assert desired.carriers(rack, rack.nodes["spark1"]) == ["enp1s0f1np1", "fabric0", "enP2p1s0f1np1", "fabric1"]


def live(**changes: int) -> dict[str, int]:
    values = {key: int(value) for key, value in desired.sysctls(RACK, NODE).items()}
    return values | {f"net.ipv4.conf.{key.replace('__', '.')}": value for key, value in changes.items()}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"enp1s0f1np1__arp_ignore": 0}, []),
        ({"enp1s0f1np1__arp_ignore": 2}, ["net.ipv4.conf.enp1s0f1np1.arp_ignore"]),
        ({"all__arp_ignore": 0}, ["net.ipv4.conf.all.arp_ignore"]),
        ({"all__arp_ignore": 2}, ["net.ipv4.conf.all.arp_ignore"]),
        ({"default__arp_announce": 0}, ["net.ipv4.conf.default.arp_announce"]),
        ({"enp1s0f0np0__arp_ignore": 8}, []),
    ],
)
def test_what_is_wrong_live(changes: dict[str, int], wrong: list[str]) -> None:
    assert list(desired.wrong_sysctls(RACK, NODE, live(**changes))) == wrong
