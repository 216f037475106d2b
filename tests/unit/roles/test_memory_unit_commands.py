"""What could bring swap back: units from listings, and areas in use."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.memory.desired import SWAP_TARGET, active, swap_unit, to_mask

ETC, LIB, GENERATED = "/etc/systemd/system", "/usr/lib/systemd/system", "/run/systemd/generator"
MASKED = f"{ETC}/swap.target /dev/null\n"


@pytest.mark.parametrize(
    ("listing", "units"),
    [
        ("", [SWAP_TARGET]),
        (MASKED, []),
        (f"{LIB}/swap.target \n", [SWAP_TARGET]),
        (f"{MASKED}{LIB}/swap.target \n", []),
        (f"{LIB}/swap.target \n{MASKED}", []),
        (f"{MASKED}{GENERATED}/swap.img.swap \n", ["swap.img.swap"]),
        (f"{MASKED}{GENERATED}/swap.img.swap \n{ETC}/swap.img.swap /dev/null\n", []),
        (f"{MASKED}{ETC}/dev-sda2.swap /etc/other\n", ["dev-sda2.swap"]),
        (f"{MASKED}{GENERATED}/dev-sda2.swap /dev/null\n", ["dev-sda2.swap"]),
        (f"{MASKED}{LIB}/zramswap.service \n", ["zramswap.service"]),
        (f"{MASKED}{LIB}/systemd-zram-setup@.service \n", ["systemd-zram-setup@.service"]),
        (f"{MASKED}{GENERATED}/dev-disk-by\\x2duuid-1.swap \n", ["dev-disk-by\\x2duuid-1.swap"]),
    ],
)
def test_to_mask(listing: str, units: list[str]) -> None:
    assert to_mask(listing, b"") == units


def test_a_line_of_fstab_without_a_unit_yet_is_masked_by_the_name_that_its_unit_gets() -> None:
    """It was written after the last daemon-reload, and an earlier operation of the run reloads."""
    fstab = (
        b"UUID=1234-5678 none swap sw,nofail,pri=10 0 0\n/swap.img none swap sw 0 0\n# /old none swap sw\n/ / ext4\n"
    )
    listing = f"{MASKED}{GENERATED}/swap.img.swap \n{ETC}/swap.img.swap /dev/null\n"
    assert to_mask(listing, fstab) == ["dev-disk-by\\x2duuid-1234\\x2d5678.swap"]


@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("/swap.img", "/swap.img"),
        ("/dev/mapper/vg--one-swap", "/dev/mapper/vg--one-swap"),
        ("//var//swap file/", "/var/swap file"),
        ("UUID=1234-5678", "/dev/disk/by-uuid/1234-5678"),
        ('LABEL="my swap"', "/dev/disk/by-label/my\\x20swap"),
        ("PARTLABEL=swäp", "/dev/disk/by-partlabel/swäp"),
        ("/.hidden", "/.hidden"),
        ("NAME=x", "NAME=x"),
    ],
)
def test_the_unit_of_a_line_is_named_as_systemd_names_it(what: str, path: str) -> None:
    escaped = subprocess.run(["systemd-escape", "--path", path], capture_output=True, text=True, check=True).stdout
    assert swap_unit(what) == f"{escaped.strip()}.swap"


names = st.sampled_from(["swap.target", "a.swap", "b.swap", "zram.service"])
folders = st.sampled_from([ETC, LIB, GENERATED, "/run/systemd/system"])
entries = st.lists(st.tuples(folders, names, st.sampled_from(["", "/dev/null", "/x"])), max_size=8)


@given(entries)
def test_masking_all_of_them_ends_it(found: list[tuple[str, str, str]]) -> None:
    listing = "".join(f"{folder}/{name} {target}\n" for folder, name, target in found)
    units = to_mask(listing, b"")
    assert set(units) <= {name for _, name, _ in found} | {SWAP_TARGET}
    after = listing + "".join(f"{ETC}/{name} /dev/null\n" for name in units)
    assert to_mask(after, b"") == []


HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(
    ("swaps", "areas"),
    [
        (HEADER, []),
        (f"{HEADER}/swap.img                               file\t\t4194300\t\t0\t\t-2\n", ["/swap.img"]),
        (f"{HEADER}/dev/zram0 partition 1 0 5\n/dev/sda2 partition 1 0 -2\n\n", ["/dev/zram0", "/dev/sda2"]),
        (f"{HEADER}/swap\\040file file 1 0 -2\n", ["/swap\\040file"]),
    ],
)
def test_active(swaps: str, areas: list[str]) -> None:
    assert active(swaps) == areas


@pytest.mark.parametrize("swaps", ["", "\n", "what is this\n", "/swap.img file 4194300 0 -2\n"])
def test_swaps_without_the_titles_of_the_kernel_are_none(swaps: str) -> None:
    with pytest.raises(ValueError, match="/proc/swaps: unexpected probe output"):
        active(swaps)
