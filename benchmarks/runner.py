"""The measurements, inside a network, process and mount namespace of their own.

Process 1 of that namespace runs this; when it ends, for whatever reason, the kernel ends every target and every tool,
and removes links and mounts.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import BenchError, targets
from benchmarks import desired_state as wanted
from benchmarks import fixture as places
from benchmarks.contenders import TOOLS, Tool, environment
from benchmarks.fixture import BenchmarkFixture
from benchmarks.targets import Target

REPOSITORY = Path(__file__).parent.parent
CORES = os.cpu_count() or 1
LONGEST = 3600.0
"""Seconds that one command may take."""
FRESH, SAME, APART = "fresh", "unchanged", "apart"
"""`apart`: unchanged, on targets that answer from a record and use no CPU, as hosts of their own would."""


@dataclass(frozen=True)
class BenchmarkRun:
    """One measured command. `cpu` and `wall` in seconds, `peak` in bytes; `remote_cpu` and `sessions` (commands and
    transfers over ssh) are those of all hosts together."""

    tool: str
    hosts: int
    state: str
    round: int
    wall: float
    cpu: float
    peak: int
    remote_cpu: float
    sessions: int
    elsewhere: float
    """Part of the machine's CPU time that other processes used meanwhile."""


def measure(
    work: Path,
    root: Path,
    others: Path,
    tools: list[Tool],
    counts: list[int],
    rounds: int,
    most: Mapping[str, int],
    answer_after: float | None = None,
) -> Iterator[BenchmarkRun]:
    """Return every run, tool by tool within a round, so that noise affects all tools alike. `most`: the largest number
    of hosts for a tool, by its name. `answer_after`: seconds after which targets answer from a record, in runs of their
    own; None: there are none.

    Raises BenchError when a tool fails, leaves another state than the others, or changes a target that is in the
    desired state.
    """
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(work)], check=True)
    targets.bridge()
    for count in counts:
        place = places.made(work / str(count), count, others)
        (place.folder / "home").mkdir()
        states: dict[str, dict[str, str]] = {}
        taking_part = [tool for tool in tools if count <= most.get(tool.name, count)]
        for number in range(rounds):
            for tool in taking_part:
                if tool.brings:
                    beside = [one for one in taking_part if one.after == tool.name and not one.brings]
                    yield from _measure_tool(place, root, tool, beside, number, states, answer_after)


def _measure_tool(
    place: BenchmarkFixture,
    root: Path,
    tool: Tool,
    beside: list[Tool],
    number: int,
    states: dict[str, dict[str, str]],
    answer_after: float | None,
) -> Iterator[BenchmarkRun]:
    """Run one tool on separate targets: fresh, then without changes; then the tools that bring no state. At last those
    that ask alike, on targets that answer from a record."""
    started = targets.start(place.folder / "targets", root, place.addresses, place.seed)
    try:
        yield _measure_command(place, started, tool, number, FRESH)
        states[tool.name] = {target.name: _read_state(place, target) for target in started}
        _require_same_state(states, tool.name)
        for one in (tool, *beside):
            yield _measure_command(place, started, one, number, SAME)
        if answer_after is not None and tool.asks_alike:
            targets.record(started)
            _measure_command(place, started, tool, number, SAME)
            targets.answer_from_record(started, answer_after)
            for one in (tool, *beside):
                if one.asks_alike:
                    yield _measure_command(place, started, one, number, APART)
            targets.answer_live(started)
        if {target.name: _read_state(place, target) for target in started} != states[tool.name]:
            raise BenchError(f"{tool.title}: a run without changes has changed something")
    finally:
        targets.end(started)


def _measure_command(
    place: BenchmarkFixture, started: list[Target], tool: Tool, number: int, state: str
) -> BenchmarkRun:
    result, log = place.folder / "result.json", place.folder / "log"
    cpu, sessions = _sum_targets(started)
    meter = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m"]
    command = [*meter, "benchmarks.measure", str(result), str(log), str(LONGEST), *tool.command(place)]
    subprocess.run(command, env={**environment(place), "PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY, check=True)
    targets.idle(started)
    after_cpu, after_sessions = _sum_targets(started)
    found = json.loads(result.read_text())
    output = log.read_text(errors="replace")
    where = f"{tool.title}, {place.count} hosts, {state}"
    if found.pop("exit") not in tool.ends:
        raise BenchError(f"{where}: the command failed:\n{output[-3000:]}")
    changed = tool.changed(output)
    if changed is not None and bool(changed) != (state == FRESH):
        raise BenchError(f"{where}: it reports {changed} changes:\n{output[-3000:]}")
    remote_cpu = after_cpu - cpu
    return BenchmarkRun(
        tool=tool.name,
        hosts=place.count,
        state=state,
        round=number,
        remote_cpu=remote_cpu,
        sessions=after_sessions - sessions,
        elsewhere=max(0.0, 1 - (found["cpu"] + remote_cpu + found.pop("idle")) / found["wall"] / CORES),
        **found,
    )


def _sum_targets(started: list[Target]) -> tuple[float, int]:
    return sum(target.cpu for target in started), sum(target.sessions for target in started)


def _read_state(place: BenchmarkFixture, target: Target) -> str:
    """All that the desired state is about: content, owner and mode, and what the kernel and systemd have live."""
    node = place.rack.nodes[target.name]
    paths, keys = wanted.managed(place.rack, node), wanted.settings(place.rack, node)
    return target.ask(
        f"set -e; stat -c '%n %F %a %U:%G' {shlex.join(paths)}; "
        f"for f in {shlex.join(paths)}; do [ -d $f ] || sha256sum $f; done; "
        f"/usr/sbin/sysctl {shlex.join(keys)}; cat /run/memlock"
    )


def _require_same_state(states: Mapping[str, Mapping[str, str]], tool: str) -> None:
    """Raises BenchError when a tool left a host in another state than the first tool did."""
    first = next(iter(states))
    for host, state in states[tool].items():
        lines = difflib.unified_diff(
            states[first][host].splitlines(), state.splitlines(), first, tool, lineterm="", n=0
        )
        if differ := "\n".join(lines):
            raise BenchError(f"{host} is not the same after {first} and after {tool}:\n{differ}")


def main() -> None:
    """Read what to do from the file that is named, and write each run as a line of JSON."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    tools = [tool for tool in TOOLS if tool.name in asked["tools"]]
    work, root, others = (Path(asked[name]) for name in ("work", "root", "others"))
    try:
        for run in measure(work, root, others, tools, asked["hosts"], asked["rounds"], asked["most"], asked["after"]):
            print(json.dumps(asdict(run)), flush=True)
    except BenchError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
