"""What could upgrade a node by itself: apt's settings, and units from listings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.driver.desired import held
from roles.driver.upgrade_blockers import CONF, NEVER, PERIODIC, UNITS, conf, overridden, to_mask
from tests.unit.model.racks import SWITCH, loaded

LIB = "/usr/lib/systemd/system"
APT_CONFIG = shutil.which("apt-config")


@pytest.mark.skipif(not APT_CONFIG, reason="this machine has no apt")
def test_apt_reads_the_drop_in(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(conf(loaded(SWITCH)))
    words = ["apt-config", "-c", str(file), "dump", "--format", "%f %v%n"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in lines if line.startswith("APT::Periodic:")] == [f"{key} 0" for key in PERIODIC]
    assert [line.split()[1] for line in lines if line.startswith("Unattended-Upgrade::Package-Blacklist::")] == list(
        NEVER
    )
    assert overridden("\n".join(lines)) == []


def test_apt_reads_it_after_those_of_ubuntu() -> None:
    own = CONF.rpartition("/")[2]
    assert all(name < own for name in ("10periodic", "20auto-upgrades", "50unattended-upgrades", "90-nvidia.conf"))


@pytest.mark.parametrize(
    "name", ["nvidia-driver-580-open", "libnvidia-gl-580", "linux-nvidia", "docker-ce", "containerd.io"]
)
def test_what_is_held_is_left_out_of_unattended_upgrades_too(name: str) -> None:
    assert held(name)
    assert name.startswith(NEVER)


@pytest.mark.parametrize("value", ["1", "always", "", "7d"])
def test_what_another_file_sets_is_reported(value: str) -> None:
    rest = "".join(f"{key} 0\n" for key in PERIODIC[1:])
    (reported,) = overridden(f"APT::Periodic \nAPT::Periodic::Enable {value}\nAPT::Periodic::Verbose 1\n{rest}")
    assert reported.startswith(f"APT::Periodic::Enable is {value!r} for apt, though {CONF} says 0")


@pytest.mark.parametrize("settings", ["", "APT::Periodic \n", "what is this\n"])
def test_what_apt_does_not_say_is_reported(settings: str) -> None:
    reported = overridden(settings)
    assert [line.split()[5] for line in reported] == list(PERIODIC)
    assert all(line.startswith("apt does not say what") for line in reported)


@pytest.mark.parametrize(
    ("listing", "units"),
    [
        ("", []),
        (f"{LIB}/apt-daily.timer \n", [("apt-daily.timer", None)]),
        (f"{UNITS}/apt-daily.timer /dev/null\n{LIB}/apt-daily.timer \n", []),
        (f"{LIB}/apt-daily.timer \n{UNITS}/apt-daily.timer /dev/null\n", []),
        (f"{LIB}/apt-daily.timer /dev/null\n", [("apt-daily.timer", None)]),
        (f"/run/systemd/system/x.timer /dev/null\n{LIB}/x.timer \n", [("x.timer", None)]),
        (f"{UNITS}/x.service \n{LIB}/x.service \n", [("x.service", f"{UNITS}/x.service")]),
        (f"{UNITS}/x.service /opt/x.service\n", [("x.service", f"{UNITS}/x.service")]),
    ],
)
def test_to_mask(listing: str, units: list[tuple[str, str | None]]) -> None:
    assert [(unit.name, unit.instead) for unit in to_mask(listing)] == units


names = st.sampled_from(["a.timer", "b.service"])
folders = st.sampled_from([UNITS, LIB, "/run/systemd/system"])
entries = st.lists(st.tuples(folders, names, st.sampled_from(["", "/dev/null", "/x"])), max_size=6)


@given(entries)
def test_masking_all_of_them_ends_it(found: list[tuple[str, str, str]]) -> None:
    listing = "".join(f"{folder}/{name} {target}\n" for folder, name, target in found)
    open_ = to_mask(listing)
    moved = {unit.instead for unit in open_ if unit.instead}
    kept = "".join(line + "\n" for line in listing.splitlines() if line.partition(" ")[0] not in moved)
    assert to_mask(kept + "".join(f"{UNITS}/{unit.name} /dev/null\n" for unit in open_)) == []


@pytest.mark.parametrize("line", ["apt-daily.timer", f"{LIB}/", "x y"])
def test_other_lines_are_no_answer(line: str) -> None:
    with pytest.raises(ValueError, match="unexpected probe output"):
        to_mask(line)
