"""Whose setting wins among drop-in files."""

from __future__ import annotations

import pytest

from core.probes.dropin_overriders import overriders

OWN = "/etc/sysctl.d/zz-own.conf"
WANTED = {"net.ipv4.conf.all.arp_ignore": "1", "vm.swappiness": "0"}


@pytest.mark.parametrize(
    "line",
    [
        "/etc/sysctl.d/zzz.conf:vm.swappiness = 1",
        "/usr/lib/sysctl.d/zzz.conf:vm.swappiness=1",
        "/run/sysctl.d/zz-own.confx:  vm/swappiness  =  1  ",
        "/etc/sysctl.d/zzz.conf:-net/ipv4/conf/all/arp_ignore = 0",
        "/etc/sysctl.d/zzz.conf:net.ipv4.conf.all.arp_ignore =",
    ],
)
def test_a_later_file_that_differs_wins(line: str) -> None:
    (reported,) = overriders(line, WANTED, OWN)
    assert reported.startswith(line.partition(":")[0] + " sets ")
    assert reported.endswith(f" and is read after {OWN}; remove that line or rename the file")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "/etc/sysctl.d/zzz.conf:vm.swappiness = 0",
        "/etc/sysctl.d/zzz.conf:#vm.swappiness = 1",
        "/etc/sysctl.d/zzz.conf: ; vm.swappiness = 1",
        "/etc/sysctl.d/zzz.conf:vm.swappiness",
        "/etc/sysctl.d/zzz.conf:vm.swap = 1",
        "/etc/sysctl.d/zzz.conf:net.ipv4.conf.*.arp_ignore = 0",
        "/usr/lib/sysctl.d/50-x.conf:vm.swappiness = 1",
        f"{OWN}:vm.swappiness = 1",
    ],
)
def test_what_does_not_win(line: str) -> None:
    assert overriders(line, WANTED, OWN) == []


def test_each_that_wins_is_reported() -> None:
    listing = "/etc/sysctl.d/zzz.conf:vm.swappiness=1\n/etc/sysctl.d/zzzz.conf:net.ipv4.conf.all.arp_ignore=0\n"
    assert len(overriders(listing, WANTED, OWN)) == 2


@pytest.mark.parametrize("line", ["/etc/sysctl.d/zzz.conf", "grep: /etc/sysctl.d: denied", "vm.swappiness=1"])
def test_a_line_that_names_no_file_and_setting_is_unknown(line: str) -> None:
    with pytest.raises(ValueError, match="drop-ins: unexpected probe output"):
        overriders(line, WANTED, OWN)
