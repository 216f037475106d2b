"""Taking swap out of fstab: only swap lines change, and those only by what is put before them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.memory.desired import OFF, is_swap, without_swap

SWAP = [
    b"/swap.img none swap sw 0 0",
    b"/swap.img\tnone\tswap\tsw\t0\t0",
    b"  /dev/sda2 none swap",
    b"UUID=1-2 swap swap defaults,pri=5 0 0 # a comment",
    b"/dev/zram0 none swap\r",
    b"LABEL=\xe4 none swap sw",
    b"\t \t/swap\\040file none  \t swap",
]
OTHER = [
    b"",
    b"   \t",
    b"# /swap.img none swap sw 0 0",
    b"\t#/swap.img none swap",
    b"#",
    b"/dev/sda1 / ext4 errors=remount-ro 0 1",
    b"/dev/sda1 /swap ext4 rw 0 0",
    b"/dev/sda1 swap ext4 rw,swap 0 0",
    b"swap /tmp tmpfs swap 0 0",
    b"none /x swapfs rw",
    b"none /x SWAP rw",
    b"/swap.img none",
    b"swap",
    b"swap swap",
    b"a\xa0b /\xe9t\xe9 ext4 rw",
    OFF + b"/swap.img none swap sw 0 0",
]
lines = st.one_of(st.sampled_from(SWAP + OTHER), st.binary(max_size=30).filter(lambda line: b"\n" not in line))
tables = st.tuples(st.lists(lines, max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.booleans()).map(
    lambda parts: parts[1].join(parts[0]) + (parts[1] if parts[2] else b"")
)


@pytest.mark.parametrize("line", SWAP)
def test_swap_entries(line: bytes) -> None:
    assert is_swap(line)


@pytest.mark.parametrize("line", OTHER)
def test_other_lines(line: bytes) -> None:
    assert not is_swap(line)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_the_line_stays_readable_behind_its_mark(end: bytes) -> None:
    before = b"/dev/sda1 / ext4 rw 0 1\n/swap.img none swap sw 0 0" + end
    assert without_swap(before) == b"/dev/sda1 / ext4 rw 0 1\n#sparkrack: swap off# /swap.img none swap sw 0 0" + end


@given(tables)
def test_what_is_left_has_no_swap(fstab: bytes) -> None:
    assert not any(is_swap(line) for line in without_swap(fstab).split(b"\n"))


@given(tables)
def test_once_is_enough(fstab: bytes) -> None:
    once = without_swap(fstab)
    assert without_swap(once) == once


@given(tables)
def test_every_byte_outside_swap_lines_is_kept(fstab: bytes) -> None:
    before, after = fstab.split(b"\n"), without_swap(fstab).split(b"\n")
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert new == old or (is_swap(old) and new == OFF + old)


@given(st.binary(max_size=200))
def test_any_bytes(fstab: bytes) -> None:
    after = without_swap(fstab)
    assert after.replace(OFF, b"") == fstab.replace(OFF, b"")
