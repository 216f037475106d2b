"""The whole crash matrix: a factory node, a run killed after its Nth command, then one ordinary run; for every N.

It takes hours and runs only by its name: `pytest tests/lab/crash_matrix.py`; `KILLS=5,12-30` for a part of it. Each
line of the table that it writes (`.matrix.tsv`) is one N: the command after which the run died, seconds until the node
had reverted a pending change, and the duration of the ordinary run after it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from tests.lab.virtual import REPOSITORY, VirtualRack

NODE = "spark3"
MOST = 200
TRIAL = 120
"""Upper limit for a pending change: seconds."""
TOTAL = re.compile(r"Grand total +(\d+) +- +- +\1 *$", re.MULTILINE)


def _list_requested_kills() -> Iterator[int]:
    for part in os.environ.get("KILLS", f"1-{MOST}").split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


whole: list[int] = []
"""The first N at which there was nothing left to be killed at."""


@pytest.mark.parametrize("after", _list_requested_kills())
def test_one_kill_then_one_run(rack: VirtualRack, after: int) -> None:
    if whole:
        pytest.skip(f"a run of fewer than {whole[0]} commands: nothing left to be killed at")
    rack.lab("reset", NODE)
    reported = rack.folder / "killed-after"
    reported.unlink(missing_ok=True)
    died = rack.run(
        *("sparkrack", "lab", "run", "--", "env", f"KILL_AFTER={after}", f"KILL_TOLD={reported}"),
        *("pyinfra", "inventory.py", "tests/lab/kill_after.py", "-y", "--limit", NODE),
        check=False,
    )
    if died.returncode == 0:
        assert after > 1
        whole.append(after)
        return
    assert died.returncode == -signal.SIGKILL, f"exit {died.returncode}\n{died.stdout}{died.stderr}"
    begun = time.monotonic()
    waited = 0.0
    while True:
        ordinary = time.monotonic()
        run = rack.deploy("-y", "--limit", NODE, check=False)
        if "is still unconfirmed" not in run.stdout + run.stderr:
            break
        waited = time.monotonic() - begun
        assert waited < TRIAL, run.stdout + run.stderr
        time.sleep(5)
    took = time.monotonic() - ordinary
    assert run.returncode == 0, f"after {after}: {run.stdout}{run.stderr}"
    again = rack.deploy("-y", "--limit", NODE)
    assert TOTAL.search(again.stderr + again.stdout), again.stdout + again.stderr
    with (REPOSITORY / ".matrix.tsv").open("a") as table:
        table.write(f"{after}\t{waited:.0f}\t{took:.0f}\t{reported.read_text().strip()}\n")
