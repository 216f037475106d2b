"""Restart of one node: what prevents it, the wait for its next boot, and the checks that prove it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from core.model import Rack
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.progress import ProgressObserver
from core.verify.outcomes import Outcome
from core.verify.runner import run_checks
from sparkrack.rebuild.workloads import CONTAINERS, parse_workload, unit_blockers

RESTART_SECONDS = 1800
"""Seconds that a node may take: a restart that brings new firmware may take a quarter of an hour."""
POLL_SECONDS = 2.0
"""Interval in seconds at which a node is asked that does not answer."""
OWN_SECONDS = 600.0
"""Seconds within which the restart of this machine has ended this process."""
UNIT_CHECKS = frozenset(
    (
        "test_each_unit_is_up_or_down_as_declared",
        "test_each_unit_answers_as_its_kind_asks",
        "test_the_ranks_of_each_unit_use_rdma",
        "test_each_rank_is_in_its_slice",
        "test_the_kernel_closes_each_rank_to_other_machines",
    )
)
"""The checks of role serving that a unit is up. No rank runs right after a boot: the unit was stopped before, or its
coordinator holds it, and a reboot of all its nodes is what a unit after an unplanned end of a machine waits for.
"""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


class NodeRestart:
    """The restart of one node."""

    def __init__(
        self,
        rack: Rack,
        node: str,
        shell: RootShell,
        checks: Sequence[Path],
        progress: ProgressObserver,
        say: Callable[[str], None],
    ) -> None:
        """`checks`: the verify files that prove the node. `say`: prints a line."""
        self._rack, self._node, self._shell = rack, node, shell
        self._checks, self._progress, self._say = checks, progress, say

    def run(self, timeout: float, sure: Callable[[], None], *, containers: bool) -> str | None:
        """Restart the node and prove it; what is wrong, or None. `sure` raises when it must not be restarted now;
        `containers`: they may end.
        """
        before, reason = self._boot_before(containers=containers)
        if reason:
            return reason
        sure()
        began = time.monotonic()
        return self._begin_restart() or self._wait_for_boot(before, began, timeout) or self._check_node()

    def check_own(self, sure: Callable[[], None], *, containers: bool) -> str | None:
        """Return why the node, which is this machine, must not restart now, or None. Arguments as of `run`."""
        _, reason = self._boot_before(containers=containers)
        if not reason:
            sure()
        return reason or None

    def restart_own(self) -> str:
        """Restart the node, which is this machine: the process ends with it. Return why it goes on instead."""
        if reason := self._begin_restart():
            return reason
        time.sleep(OWN_SECONDS)
        return f"this machine has not gone down within {OWN_SECONDS:g} s"

    def _boot_before(self, *, containers: bool) -> tuple[str, str]:
        """Return the ID of the present boot, and why the node must not restart; empty when it may."""
        self._progress.step(self._node, "read its containers")
        try:
            return str(self._shell.run(BOOT_ID).stdout), self._find_blocker(containers=containers)
        except UnreachableError as gone:
            return "", f"cannot be asked: {gone.why}"

    def _find_blocker(self, *, containers: bool) -> str:
        """Return why the node must not restart now; empty when it may. Raises UnreachableError."""
        asked = self._shell.run(CONTAINERS)
        try:
            running, units = parse_workload(str(asked.stdout))
        except ValueError as unknown:
            return f"whether containers run is unknown: {unknown}"
        if asked.rc and not containers:
            return "perhaps containers run; stop them, or pass --containers"
        if units:
            return "; ".join(unit_blockers(self._rack, {unit: [self._node] for unit in units}, stops=False))
        if running and not containers:
            return f"{running} containers run; stop them, or pass --containers"
        return ""

    def _begin_restart(self) -> str | None:
        """Tell the node to restart; why it refuses, or None."""
        self._say(f"{self._node}: restarts")
        self._progress.step(self._node, "end its services")
        try:
            done = self._shell.run("systemctl reboot")
        except UnreachableError:
            return None  # it was faster than its answer
        finally:
            self._shell.close()
        return None if done.rc == 0 else f"does not restart: {done.stderr.strip() or f'exit {done.rc}'}"

    # claim: reboot.duration
    def _wait_for_boot(self, before: str, began: float, timeout: float) -> str | None:
        """Wait for another boot than `before`; what is wrong, or None."""
        self._progress.step(self._node, f"wait until it answers again, at most {timeout} s")
        while self._boot_id() in (None, before):
            if time.monotonic() - began > timeout:
                return f"did not come back within {timeout} s; look at its console"
            time.sleep(POLL_SECONDS)
        self._shell.close()
        self._say(f"{self._node}: is back after {time.monotonic() - began:.0f} s")
        return None

    # claim: driver.reboot, fabric.reboot, lossless.reboot, reboot.settings
    def _check_node(self) -> str | None:
        """Check the node; what is wrong, or None."""
        found = run_checks(self._rack, self._checks, [self._node], None, progress=self._progress)
        outcomes = [
            one for one in found if not one.skipped and not (one.role == "serving" and _check_name(one) in UNIT_CHECKS)
        ]
        faults = [outcome for outcome in outcomes if not outcome.passed]
        for outcome in faults:
            self._say(f"{self._node}: failed {outcome.role}: {outcome.why}")
        if faults or not outcomes:
            return "is back, and is not as declared" if faults else "is back, and nothing could be proven"
        self._say(f"{self._node}: {len(outcomes)} checks passed")
        return None

    def _boot_id(self) -> str | None:
        """Return the ID of the node's present boot; None while it does not answer."""
        try:
            return str(self._shell.run(BOOT_ID).stdout) or None
        except UnreachableError:
            return None


def _check_name(outcome: Outcome) -> str:
    """Return the name of the check, from the ID that pytest gives it."""
    return outcome.check.rpartition("::")[2].partition("[")[0]
