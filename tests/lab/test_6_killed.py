"""An operator who is killed after a command: whatever was done stands, and the next run goes on from there.

A chain: from factory state each run is killed after some commands, and the next one is an ordinary run that begins
where that one died, until one finds nothing left to be killed at. So every state that a kill leaves behind is one that
an ordinary run takes up. Ten chains of the soak tests begin at ten places, and kill between them after every command.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=5)

NODE = "spark3"
EVERY = 10
CHAINS = [(20, 20), *(pytest.param(first, EVERY, marks=pytest.mark.soak) for first in range(1, EVERY + 1))]
"""After how many commands the first run of a chain is killed, and after how many each other one."""
MOST = 120
TAKEN_BACK = "for _ in $(seq 400); do ls /run/sparkrack/*.revert >/dev/null 2>&1 || exit 0; sleep 0.5; done; exit 1"
"""Waits until the node has reverted what was on trial; it does so after 90 s."""
KILLED = str(Path(__file__).with_name("kill_after.py"))


@pytest.mark.parametrize(("first", "every"), CHAINS)
def test_a_chain_of_killed_runs_converges(rack: VirtualRack, first: int, every: int) -> None:
    rack.lab("reset", NODE)
    runs = waits = 0
    for _ in range(MOST):
        done = rack.run(
            *("sparkrack", "lab", "run", "--", "env", f"KILL_AFTER={(every if runs else first) + waits}"),
            *("pyinfra", "inventory.py", KILLED, "-y", "--limit", NODE),
            check=False,
        )
        if done.returncode == 0:
            break
        reported = done.stdout + done.stderr
        if "is still unconfirmed" in reported:
            # Killed between a change that could cut the node off and its proof: the node takes it back by itself. The
            # next run gets one command more, or it would be killed there for ever.
            waits += 1
            rack.ssh(NODE, TAKEN_BACK)
            continue
        # What `sparkrack lab run` makes of SIGKILL; anything else is a run that refused, or failed by itself.
        assert done.returncode == -signal.SIGKILL, f"run {runs}: exit {done.returncode}\n{reported}"
        runs += 1
    else:
        raise AssertionError(f"no end after {runs} runs")
    assert runs
    print(f"{runs} runs were killed, after {first} and then {every} commands; a trial was waited for {waits} times")
    last = rack.deploy("-y", "--limit", NODE)
    assert re.search(r"Grand total +(\d+) +- +- +\1 *$", last.stderr + last.stdout, re.MULTILINE)
    rack.deploy("-y", roles=("access",))  # the other nodes accept the new key of this one
    rack.verify("--limit", NODE)
