"""Which worker of pytest-xdist runs which file: the tests of the virtual rack on as many workers as the machine has
room for racks, all other tests on all workers, so that they have the processor while a rack waits.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

LAB = "tests/lab/"
MORE_GIB = 14
"""With this memory a machine has room for one worker more: in `make soak`, which has many files of the rack, for a
third rack; in `make test` for one without, since a rack costs the boots of its nodes."""
MOST_CORES = 4
"""More are not used: memory is short before."""


def most_racks(gib: float, *, soak: bool) -> int:
    """Return how many virtual racks of tests run at a time on such a machine. `soak`: in `make soak`."""
    return 3 if soak and gib >= MORE_GIB else 2


def most_workers(cores: int, gib: float, *, soak: bool) -> int:
    """Return how many workers a run has: one for each rack and each core, since a worker waits for nodes, leases and
    timers for half of its time. `soak`: not more than racks, since each soak test may need gigabytes.
    """
    racks = most_racks(gib, soak=soak)
    return racks if soak else racks + min(cores, MOST_CORES) + (gib >= MORE_GIB)


def machine() -> tuple[int, float]:
    """Return the cores and the memory in GiB of this machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
    return len(os.sched_getaffinity(0)), kib / (1 << 20)


class RackScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files in their order; those of the virtual rack only to workers that have one, or may still get one."""

    def __init__(self, config: pytest.Config, log: Producer | None, racks: int) -> None:
        super().__init__(config, log)
        self.racks = racks
        self.with_rack: set[WorkerController] = set()

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_for(node)
        if scope is None:  # what is left needs a rack
            node.shutdown()
            return
        if scope.startswith(LAB):
            self.with_rack.add(node)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test at which a worker crashed, None for one that has ended. The rest of its files, and its rack,
        go to others. xdist's own also hands out the files that the worker has completed, whose next test then never
        ends (the run waits for ever), and the test that crashed it.
        """
        self.with_rack.discard(node)
        left = {file: tests for file, tests in self.assigned_work.pop(node).items() if not all(tests.values())}
        if not left:
            return None
        file, tests = next(iter(left.items()))
        crashed: str = next(test for test, completed in tests.items() if not completed)
        tests[crashed] = True
        if all(tests.values()):
            del left[file]
        self.workqueue.update(left)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _next_for(self, node: WorkerController) -> str | None:
        """Return the first file in the queue that this worker may run."""
        may = node in self.with_rack or len(self.with_rack) < self.racks
        return next((scope for scope in self.workqueue if may or not scope.startswith(LAB)), None)


def only_soak(config: pytest.Config) -> bool:
    """Return whether a run is `make soak`."""
    return bool(config.option.markexpr == "soak")


def auto_workers(config: pytest.Config) -> int:
    """Return what `-n auto` is on this machine."""
    return most_workers(*machine(), soak=only_soak(config))


class Workers:
    """The plugin: the scheduler of `--dist loadfile`."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Any:
        """Only for whole files: the tests of one share a rack."""
        if config.option.dist != "loadfile":
            return None
        return RackScheduling(config, log, most_racks(machine()[1], soak=only_soak(config)))
