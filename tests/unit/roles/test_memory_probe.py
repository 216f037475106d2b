"""What the memory role asks of a node, run by a real shell in folders like a node's."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ops import host_facts
from roles.memory import desired, facts
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import rooted, run, stand_in, write

COMMANDS = host_facts._registered["memory"].commands


def asked(node: Path, key: str) -> str:
    done = run(COMMANDS[key], node)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_bare_node_answers_with_nothing(tmp_path: Path) -> None:
    assert [asked(tmp_path, key) for key in (facts.UNITS, facts.OTHERS, facts.ZRAM)] == ["", "", ""]


def test_units(tmp_path: Path) -> None:
    write(tmp_path, "/run/systemd/generator/swap.img.swap")
    write(tmp_path, "/usr/lib/systemd/system/swap.target")
    write(tmp_path, "/usr/lib/systemd/system/systemd-zram-setup@.service")
    write(tmp_path, "/usr/lib/systemd/system/ssh.service")
    write(tmp_path, "/run/systemd/generator/swap.target.wants/x")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/swap.target").symlink_to("/dev/null")
    (tmp_path / "etc/systemd/system/gone.swap").symlink_to("/nowhere")
    listing = asked(tmp_path, facts.UNITS).replace(str(tmp_path), "")
    assert desired.to_mask(listing, b"") == ["gone.swap", "swap.img.swap", "systemd-zram-setup@.service"]


def test_settings(tmp_path: Path) -> None:
    write(tmp_path, "/etc/sysctl.d/zzz a.conf", "# x\nvm.overcommit_memory=1\nnet.x = 1\n")
    write(tmp_path, "/usr/lib/sysctl.d/zzz.conf", "vm/min_free_kbytes = 1\n")
    write(tmp_path, "/etc/sysctl.d/10-a.conf", "vm.overcommit_memory=1\n")
    write(tmp_path, "/etc/sysctl.d/zzz.conf.bak", "vm.overcommit_memory=1\n")
    listing = asked(tmp_path, facts.OTHERS).replace(str(tmp_path), "")
    faults = desired.conflicting_settings(listing, loaded(SWITCH))
    assert [fault.partition(" sets")[0] for fault in faults] == [
        "/etc/sysctl.d/zzz a.conf",
        "/usr/lib/sysctl.d/zzz.conf",
    ]


@pytest.mark.parametrize("tool", ["grep"])
def test_settings_that_cannot_be_read_are_unknown(tmp_path: Path, tool: str) -> None:
    write(tmp_path, "/etc/sysctl.d/a.conf", "x\n")
    stand_in(tmp_path, tool, "exit 2")
    assert run(COMMANDS[facts.OTHERS], tmp_path).returncode == 9


def test_a_dangling_drop_in_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    (tmp_path / "etc/sysctl.d/a.conf").symlink_to("/nowhere")
    assert asked(tmp_path, facts.OTHERS) == ""


def test_zram(tmp_path: Path) -> None:
    write(tmp_path, "/sys/block/zram0/disksize", "0\n")
    write(tmp_path, "/sys/block/zram1/disksize", "1073741824\n")
    write(tmp_path, "/sys/block/sda/size", "1\n")
    assert asked(tmp_path, facts.ZRAM) == "zram0 0\nzram1 1073741824\n"


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    for text in COMMANDS.values():
        for top in ("/etc/", "/run/", "/usr/lib/", "/sys/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")
