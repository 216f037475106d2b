"""The names of a GB10's interfaces and PCIe functions, as DGX OS has them."""

from __future__ import annotations

import fnmatch

from core.hardware import gb10


def test_names_of_the_halves() -> None:
    assert {gb10.half_interface(port, half): gb10.half_function(port, half) for port, half in gb10.HALVES.values()} == {
        "enp1s0f0np0": "0000:01:00.0",
        "enP2p1s0f0np0": "0002:01:00.0",
        "enp1s0f1np1": "0000:01:00.1",
        "enP2p1s0f1np1": "0002:01:00.1",
    }
    assert gb10.HALVES["0002:01:00.1"] == (1, 1)


def test_the_patterns_of_a_shell_find_these_interfaces_and_no_other() -> None:
    patterns = gb10.SYSFS_INTERFACES.split()
    others = ("enP7s7", "enp1s0f2np2", "enp1s0f0np0.1100", "lo")
    found = {
        name
        for name in (*gb10.INTERFACES, *others)
        if any(fnmatch.fnmatchcase(f"/sys/class/net/{name}", pattern) for pattern in patterns)
    }
    assert found == gb10.INTERFACES
