"""The lab itself: safe to run again, one machine back to factory, nothing left behind after a crash."""

from __future__ import annotations

import os
import signal

from lab import namespace as ns
from tests.lab.virtual import VirtualRack


def test_up_again_changes_nothing(rack: VirtualRack) -> None:
    def running() -> list[str]:
        boots = [rack.ssh(node, "cat /proc/sys/kernel/random/boot_id") for node in rack.nodes]
        switch = ns.matching(rack.place.namespace, str(rack.place.switch("crs812") / "config.json"))
        return [*boots, str(switch), rack.place.rack.read_text()]

    before = running()
    rack.lab("up", "--nodes", "3")
    assert running() == before
    assert rack.lab("status").stdout.count("running") == 4


def test_another_rack_is_refused_while_one_runs(rack: VirtualRack) -> None:
    done = rack.lab("up", "--nodes", "2", check=False)
    assert done.returncode == 1
    assert "a lab of another rack is running here" in done.stderr


def test_the_switch_goes_back_to_factory_and_takes_the_fabric_along(rack: VirtualRack) -> None:
    rack.lab("reset", "crs812")
    assert "does not reach" in rack.verify("--only", "fabric", check=False).stdout
    rack.deploy("-y", "--limit", "switches")
    rack.verify("--only", "fabric", "--only", "switch")


def test_what_was_killed_comes_back_with_up(rack: VirtualRack) -> None:
    for pid in ns.processes(rack.place.namespace):
        os.kill(pid, signal.SIGKILL)
    assert rack.lab("status", check=False).returncode == 1
    rack.lab("up", "--nodes", "3")
    rack.verify("--only", "fabric", "--only", "memory")


def test_down_leaves_nothing_even_after_a_crash(rack: VirtualRack) -> None:
    namespace, pids = rack.place.namespace, ns.processes(rack.place.namespace)
    assert pids
    os.kill(pids[0], signal.SIGKILL)
    rack.place.plan.unlink()
    rack.lab("down")
    assert not ns.exists(namespace)
    assert not [pid for pid in pids if ns.alive(pid)]
    assert not rack.folder.exists()
    rack.lab("down")
    done = rack.lab("status", check=False)
    assert done.returncode == 1
    assert "there is no lab in" in done.stderr
