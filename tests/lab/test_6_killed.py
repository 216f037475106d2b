"""An operator who is killed after a command: whatever was done stands, and the next run goes on from there.

A chain: from factory state each run is killed after some commands, and the next one is an ordinary run that begins
where that one died, until one finds nothing left to be killed at. So every state that a kill leaves behind is one that
an ordinary run takes up. `EVERY=1` kills after each single command; what that takes is in docs/lab.md.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from tests.lab.virtual import VirtualRack

NODE = "spark3"
EVERY = int(os.environ.get("EVERY", "20"))
MOST = 120
KILLED = str(Path(__file__).with_name("killed.py"))


def test_a_chain_of_killed_runs_converges(rack: VirtualRack) -> None:
    rack.lab("reset", NODE)
    runs = waits = 0
    for _ in range(MOST):
        done = rack.run(
            *("sparkrack", "lab", "run", "--", "env", f"KILL_AFTER={EVERY + waits}"),
            *("pyinfra", "inventory.py", KILLED, "-y", "--limit", NODE),
            check=False,
        )
        if done.returncode == 0:
            break
        said = done.stdout + done.stderr
        if "is still on trial" in said:
            # Killed between a change that could cut the node off and its proof: the node takes it back by itself. The
            # next run gets one command more, or it would be killed there for ever.
            waits += 1
            time.sleep(20)
            continue
        # What `sparkrack lab run` makes of SIGKILL; anything else is a run that refused, or failed by itself.
        assert done.returncode == 256 - signal.SIGKILL, f"run {runs}: exit {done.returncode}\n{said}"
        runs += 1
    else:
        raise AssertionError(f"no end after {runs} runs")
    assert runs
    print(f"{runs} runs were killed, after {EVERY} commands each; a trial was waited for {waits} times")
    last = rack.deploy("-y", "--limit", NODE)
    assert re.search(r"Grand total +(\d+) +- +- +\1 *$", last.stderr + last.stdout, re.MULTILINE)
    rack.deploy("-y")
    rack.verify()
