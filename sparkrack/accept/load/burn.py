"""The GPU of each node under load, one node after the other: the cap of its clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, ValidationError

from core.model.role import role_named
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import resources
from core.util.project_files import PACKAGES
from core.util.records import Record
from core.verify.runner import run_checks
from roles.blackbox.clock_cap import TOLERANCE, cap
from sparkrack.accept.evaluate import not_shown, observed, refuted, unknown
from sparkrack.accept.load.part import LoadRun, Results, working
from sparkrack.accept.model import MachineResult

BURN_SECONDS = 20
_LIMIT_SECONDS = BURN_SECONDS + 90
_CHECK = "test_the_clock_is_capped"
_Sample = tuple[float | None, float | None, float | None]
"""Clock (MHz), temperature (C), power (W)."""


class _Burn(Record):
    """What `gpu_burn.py` prints. `absent`: why there is no GPU to load; `refused`: what else computes on it;
    `wrong`: launches with another result than the first one.
    """

    absent: str = ""
    refused: str = ""
    seconds: Annotated[float, Field(ge=0)] = 0
    launches: int = 0
    wrong: int = 0
    samples: tuple[_Sample, ...] = ()

    @property
    def clock(self) -> float | None:
        """The highest clock."""
        return max((one[0] for one in self.samples if one[0] is not None), default=None)

    @property
    def text(self) -> str:
        names = ("MHz", "C", "W")
        most = [max((one[place] or 0 for one in self.samples), default=0) for place in range(len(names))]
        figures = ", ".join(f"{value:g} {name}" for value, name in zip(most, names, strict=True) if value)
        found = f"burn of {self.seconds:.0f} s: at most {figures or 'nothing is known'}"
        return f"{found}; {self.wrong} of {self.launches} launches gave another result" if self.wrong else found


# claim: blackbox.clock-cap
def burned(run: LoadRun) -> Results:
    """Load the GPU of each node that does not work."""
    return {"blackbox.clock-cap": list(_nodes(run))}


def _nodes(run: LoadRun) -> Iterator[MachineResult]:
    busy = working(run.rack, run.nodes, containers=False)
    with open_shells(run.rack, run.nodes, _LIMIT_SECONDS) as shells:
        for name in run.nodes:
            if name in busy:
                yield unknown(name, f"not tried: {busy[name]}")
                continue
            run.held.check()
            run.progress.step(name, f"load its GPU for {BURN_SECONDS} s")
            yield _judged(run, name, shells[name])
            run.progress.finish(name)


def _judged(run: LoadRun, name: str, shell: RootShell) -> MachineResult:
    try:
        done = shell.run(_command())
        found = _Burn.model_validate(json.loads(str(done.stdout)))
    except UnreachableError as gone:
        return unknown(name, gone.why)
    except (ValueError, ValidationError):
        return unknown(name, f"the answer is not understood: {str(done.stderr or done.stdout)[-200:]}")
    if found.absent:
        return not_shown(name, f"not tried: {found.absent}")
    if found.refused:
        return unknown(name, f"not tried: {found.refused}")
    wanted = cap(run.rack, run.rack.nodes[name])
    if wanted is None:
        return not_shown(name, f"{found.text}; blackbox.clock_cap declares none for this node")
    if found.clock is None:
        return unknown(name, f"{found.text}; cap {wanted} MHz")
    verify = PACKAGES / role_named("blackbox").verify_file
    checks = [one for one in run_checks(run.rack, [verify], [name], None) if _CHECK in one.check or one.unknown]
    text = "; ".join([f"{found.text}; cap {wanted} MHz", *(one.why for one in checks if not one.passed)])
    if found.clock > wanted + TOLERANCE or any(one.failed for one in checks):
        return refuted(name, text)
    return observed(name, text) if checks and all(one.passed for one in checks) else unknown(name, text)


def _command() -> str:
    program = resources.file_text("roles.blackbox", "files/gpu_burn.py")
    return f"timeout {_LIMIT_SECONDS - 10} python3 - {BURN_SECONDS} <<'END-OF-PROGRAM'\n{program}\nEND-OF-PROGRAM"
