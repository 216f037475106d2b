"""Kernel settings: the drop-in, how much a node can keep free, and whose drop-in wins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import Rack
from roles.memory import desired
from roles.memory.options import MemoryOptions
from tests.unit.model.racks import SWITCH, loaded

OWN = desired.DROPIN.rsplit("/", 1)[-1]
RACK = loaded(SWITCH)


def rack(**memory: int) -> Rack:
    return loaded(SWITCH + "".join(f"  {key}: {value}\n" for key, value in memory.items()))


def test_the_drop_in_says_what_the_rack_says() -> None:
    lines = desired.dropin(rack(min_free_kbytes=2000000, overcommit_memory=1)).decode().splitlines()
    assert lines == [
        "# Written by sparkrack for the rack two; a change here is overwritten.",
        "vm.min_free_kbytes = 2000000",
        "vm.overcommit_memory = 1",
    ]


def test_sysctl_reads_the_drop_in(tmp_path: Path) -> None:
    """A line that sysctl cannot parse is skipped with a complaint, so its own parser has the last word."""
    file = tmp_path / "x.conf"
    file.write_bytes(desired.dropin(RACK))
    done = subprocess.run(["sysctl", "--dry-run", "-p", str(file)], capture_output=True, text=True)
    if "--dry-run" in done.stderr:
        pytest.skip("this sysctl knows no --dry-run")
    assert (done.stdout, done.stderr) == ("vm.min_free_kbytes = 1572864\nvm.overcommit_memory = 0\n", "")


def test_it_is_read_after_every_usual_drop_in() -> None:
    usual = ["99-sysctl.conf", "99-zzz.conf", "kubelet.conf", "zz-docker.conf", "10-x.conf", "Z.conf"]
    assert all(name < OWN for name in usual)


@pytest.mark.parametrize("key", desired.sysctls(RACK))
def test_the_kernel_has_every_setting(key: str) -> None:
    assert Path(desired.live_path(key)).exists()


@pytest.mark.parametrize(
    ("total", "allowed"), [(2 * 1572864, True), (2 * 1572864 - 1, False), (128 * 1024**2, True), (0, False)]
)
def test_more_than_half_is_too_much(total: int, allowed: bool) -> None:
    reported = desired.too_much_free(RACK, total)
    assert (reported is None) == allowed
    assert reported is None or f"at most {total // 2} " in reported


@given(st.integers(1024, 6 * 1024**2), st.integers(0, 2**40))
def test_what_is_named_as_the_most_is_allowed(wanted: int, total: int) -> None:
    rack = RACK.model_copy(update={"memory": MemoryOptions(min_free_kbytes=wanted)})
    reported = desired.too_much_free(rack, total)
    assert (reported is None) == (2 * wanted <= total)


WINS = "/etc/sysctl.d/zzz.conf"


@pytest.mark.parametrize(
    "line",
    [
        f"{WINS}:vm.min_free_kbytes = 67584",
        f"{WINS}:vm.min_free_kbytes=67584",
        f"{WINS}:  vm/min_free_kbytes  =  67584  ",
        f"{WINS}:-vm.min_free_kbytes = 67584",
        f"{WINS}:vm.overcommit_memory = 1",
        "/usr/lib/sysctl.d/zz-t.conf:vm.overcommit_memory=2",
        "/etc/sysctl.d/zz.conf:vm.overcommit_memory=2",
        "/run/sysctl.d/zz-sparkrack-memory.confx:vm.overcommit_memory=2",
    ],
)
def test_a_later_drop_in_that_differs_wins(line: str) -> None:
    (reported,) = desired.conflicting_settings(line, RACK)
    assert reported.startswith(line.partition(":")[0] + " sets vm.")


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"{WINS}:vm.min_free_kbytes = 1572864",
        f"{WINS}:vm.overcommit_memory = 0",
        f"{WINS}:#vm.overcommit_memory = 1",
        f"{WINS}: ; vm.overcommit_memory = 1",
        f"{WINS}:vm.overcommit_memory",
        f"{WINS}:vm.overcommit_ratio = 1",
        "/etc/sysctl.d/99-sysctl.conf:vm.overcommit_memory = 1",
        f"{desired.DROPIN}:vm.overcommit_memory = 1",
        "/etc/sysctl.d/10-a.conf:vm.min_free_kbytes = 1",
    ],
)
def test_what_does_not_win(line: str) -> None:
    assert desired.conflicting_settings(line, RACK) == []


def test_each_that_wins_is_reported() -> None:
    listing = (
        f"{WINS}:vm.min_free_kbytes = 1\n{WINS}:vm.overcommit_memory = 1\n/run/sysctl.d/zzzz.conf:vm.swappiness=0\n"
    )
    assert len(desired.conflicting_settings(listing, RACK)) == 2
