"""The GPU of each node under load, one node after the other: its results, its clock and what nvidia-smi shows.

One at a time, since a step of the load is what takes down a node with a weak power supply: the node is known then, and
the circuit of the rack gets the step of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from core.model import Rack
from core.model.role import role_named
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util import resources
from core.util.project_files import PACKAGES
from core.util.records import Record, Text
from core.verify.outcomes import Outcome
from core.verify.runner import run_checks
from roles.blackbox import clock_cap, recorder
from roles.blackbox.options import BlackboxOptions
from sparkrack.accept.evaluate import not_shown, observed, refuted, unknown
from sparkrack.accept.load.part import LoadError, LoadRun, Results, working
from sparkrack.accept.model import MachineResult
from sparkrack.rebuild.restart import BOOT_ID, NodeRestart

BURN_SECONDS = 20
MARGIN_SECONDS = 120
"""Seconds for the start of the driver, and for one that hangs, beside the load."""
ANSWER_SECONDS = 30
RETURN_SECONDS = 600
"""Seconds within which a node answers again that was lost under load."""
MOST_MEMORY = 1 << 30
"""Bytes of memory by which a load may lower what is available."""
HARMFUL = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
"""Reasons for a lower clock that a sound node does not have."""
CAP_CHECK, RECORDER_CHECK = "test_the_clock_is_capped", "test_samples_are_recorded"
CLAIMS = ("accept.burn", "blackbox.clock-cap", "blackbox.recorder-gpu")
_UNITS = {"clock": "MHz", "power": "W", "temperature": "C", "margin": "C of margin"}
_Values = Mapping[str, Any]


class _Memory(Record):
    before: int
    lowest: int
    after: int


class Burned(Record):
    """What `files/gpu_burn.py` prints; it explains `absent`, `refused`, `hung` and `fault`. `smi`: why nvidia-smi
    printed no more values.
    """

    absent: Text = ""
    refused: Text = ""
    hung: Text = ""
    fault: Text = ""
    seconds: float = Field(ge=0)
    launches: int
    wrong: int
    before: _Values = Field(default_factory=dict)
    after: _Values = Field(default_factory=dict)
    highest: Mapping[str, float | None] = Field(default_factory=dict)
    lowest: Mapping[str, float | None] = Field(default_factory=dict)
    reasons: Mapping[str, int] = Field(default_factory=dict)
    lines: int = 0
    lacking: tuple[str, ...] = ()
    memory: _Memory | None = None
    smi: Text = ""

    @property
    def taken(self) -> int:
        """Bytes by which the available memory fell."""
        return self.memory.before - self.memory.lowest if self.memory else 0

    @property
    def text(self) -> str:
        """What was seen, in one line."""
        ranges = []
        for name, unit in _UNITS.items():
            low, high, was, then = (one.get(name) for one in (self.lowest, self.highest, self.before, self.after))
            if high is not None:
                ranges.append(
                    f"{_figure(low)} to {_figure(high)} {unit} (before {_figure(was)}, after {_figure(then)})"
                )
        reasons = [f"{name} in {count} of {self.lines} samples" for name, count in self.reasons.items()]
        found = f"{self.launches} launches in {self.seconds:.0f} s, {self.wrong} with a wrong result"
        return "; ".join([found, *ranges, *reasons, f"memory fell by {self.taken >> 20} MiB"])


@dataclass(frozen=True)
class _Loaded:
    """A node after its load. `burned`: None when the node gave no answer, or was not loaded; `why`: the reason.
    `restarted`: it restarted during the load.
    """

    burned: Burned | None = None
    why: str = ""
    restarted: bool = False


# claim: accept.burn, blackbox.clock-cap, blackbox.recorder-gpu
def burned(run: LoadRun, seconds: int) -> Results:
    """Load the GPU of each node that does not work. Raises LoadError when a node does not come back."""
    loaded = dict(_each(run, seconds))
    outcomes = _checks(run, [name for name, one in loaded.items() if one.burned and one.burned.launches])
    return {
        "accept.burn": [_results(name, one) for name, one in loaded.items()],
        "blackbox.clock-cap": [_clock(run, name, one, outcomes) for name, one in loaded.items()],
        "blackbox.recorder-gpu": [_recorder(run, name, one, outcomes) for name, one in loaded.items()],
    }


def _each(run: LoadRun, seconds: int) -> Iterator[tuple[str, _Loaded]]:
    busy = working(run.rack, run.nodes, containers=False)
    for name in run.nodes:
        if name in busy:
            yield name, _Loaded(why=f"not tried: {busy[name]}")
            continue
        run.held.check()
        run.progress.step(name, f"load its GPU for {seconds} s")
        yield name, _load(run, name, seconds)
        run.progress.finish(name)


def _load(run: LoadRun, name: str, seconds: int) -> _Loaded:
    limit = seconds + MARGIN_SECONDS
    with open_shells(run.rack, [name], limit + ANSWER_SECONDS) as shells:
        try:
            before = str(shells[name].run(BOOT_ID).stdout)
        except UnreachableError as gone:
            return _Loaded(why=gone.why)
        try:
            done = shells[name].run(_command(seconds, limit))
        except UnreachableError as gone:
            return _lost(run, name, before, gone.why)
    return _parsed(str(done.stdout), str(done.stderr), done.rc)


def _lost(run: LoadRun, name: str, before: str, why: str) -> _Loaded:
    """Wait for a node whose session ended under load. Raises LoadError when it does not come back."""
    with open_shells(run.rack, [name], ANSWER_SECONDS) as shells:
        node = NodeRestart(run.rack, name, shells[name], (), run.progress, run.say)
        if fault := node.wait("", RETURN_SECONDS):
            raise LoadError(f"{name}: its GPU was loaded, and it {fault}")
        try:
            now = str(shells[name].run(BOOT_ID).stdout)
        except UnreachableError as gone:
            return _Loaded(why=gone.why)
    if now != before:
        return _Loaded(why="it restarted while its GPU was loaded", restarted=True)
    return _Loaded(why=f"under load: {why}")


def _command(seconds: int, limit: int) -> str:
    """The program as the input of Python, so that no file of it is on the node."""
    program = resources.file_text("sparkrack.accept.load", "files/gpu_burn.py")
    return f"timeout -k 5 {limit} python3 -I - {seconds} <<'END-OF-PROGRAM'\n{program}\nEND-OF-PROGRAM"


def _parsed(stdout: str, stderr: str, code: int) -> _Loaded:
    if code == 127:
        return _Loaded(why="not tried: it has no python3")
    if code in (124, 137):
        return _Loaded(why="the load did not end in time and was ended")
    try:
        return _Loaded(Burned.model_validate(json.loads(stdout)))
    except (ValueError, ValidationError):
        return _Loaded(why=f"the answer is not understood: {(stderr or stdout).strip()[-200:] or f'exit {code}'}")


def _checks(run: LoadRun, names: Sequence[str]) -> list[Outcome]:
    """What the checks of the role blackbox show after the load, where one of ours is about a unit of it."""
    wanted = [name for name in names if _cap(run.rack, name) is not None or _recorder_declared(run.rack)]
    if not wanted:
        return []
    files = [PACKAGES / role_named("blackbox").verify_file]
    return run_checks(run.rack, files, wanted, None, excluded=run.excluded, progress=run.progress)


def _cap(rack: Rack, name: str) -> int | None:
    """The cap of a node in MHz; None for none."""
    return clock_cap.cap(rack, rack.nodes[name]) if rack.declared(BlackboxOptions) else None


def _recorder_declared(rack: Rack) -> bool:
    return rack.declared(BlackboxOptions) is not None and recorder.options(rack) is not None


def _judged(name: str, one: _Loaded, judge: Callable[[Burned], MachineResult]) -> MachineResult:
    """Judge a load that came to its end; else why there was none."""
    found = one.burned
    if found is None:
        return unknown(name, one.why)
    if found.absent:
        return not_shown(name, f"not tried: {found.absent}")
    if found.refused:
        return unknown(name, f"not tried: {found.refused}")
    if found.hung or found.fault:
        return unknown(name, found.hung or found.fault)
    return judge(found)


def _results(name: str, one: _Loaded) -> MachineResult:
    if one.restarted:
        return refuted(name, one.why)
    # A driver that hangs before the load may have another cause.
    if (found := one.burned) and (found.fault or (found.hung and found.launches)):
        return refuted(name, f"{found.fault or found.hung}; {found.text}")

    def judge(found: Burned) -> MachineResult:
        harmful = any(found.reasons.get(reason) for reason in HARMFUL)
        good = not found.wrong and not harmful and found.taken <= MOST_MEMORY
        return (observed if good else refuted)(name, found.text)

    return _judged(name, one, judge)


def _clock(run: LoadRun, name: str, one: _Loaded, outcomes: Sequence[Outcome]) -> MachineResult:
    def judge(found: Burned) -> MachineResult:
        wanted, highest = _cap(run.rack, name), found.highest.get("clock")
        if wanted is None:
            return not_shown(name, f"{run.rack.source.name} declares no blackbox.clock_cap for it; {found.text}")
        if highest is None:
            return unknown(name, f"nvidia-smi shows no clock; {found.text}")
        text = f"cap {wanted} MHz, highest clock {_figure(highest)} MHz"
        if highest > wanted + clock_cap.TOLERANCE:
            return refuted(name, text)
        return _with_checks(name, CAP_CHECK, outcomes, text)

    return _judged(name, one, judge)


def _recorder(run: LoadRun, name: str, one: _Loaded, outcomes: Sequence[Outcome]) -> MachineResult:
    def judge(found: Burned) -> MachineResult:
        text = f"{found.lines} lines of nvidia-smi -lms 500 in {found.seconds:.0f} s"
        if found.lacking:
            return refuted(name, f"{text}; no value of {', '.join(found.lacking)}")
        if found.smi or found.lines < found.seconds:
            return refuted(name, "; ".join(filter(None, (text, found.smi))))
        if not _recorder_declared(run.rack):
            return not_shown(name, f"{text}, each with all values; its sandbox needs a declared blackbox.recorder")
        return _with_checks(name, RECORDER_CHECK, outcomes, text)

    return _judged(name, one, judge)


def _with_checks(name: str, check: str, outcomes: Sequence[Outcome], text: str) -> MachineResult:
    """The same, as far as the check of the unit agrees."""
    own = [one for one in outcomes if one.machine == name and (check in one.check or one.unknown)]
    text = "; ".join([text, *(one.why for one in own if not one.passed)])
    if any(one.failed for one in own):
        return refuted(name, text)
    return observed(name, text) if own and all(one.passed for one in own) else unknown(name, text)


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
