"""Sequence of `sparkrack rebuild`: resume or begin, run the phases, report the result."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.model import Rack, SecretError, load
from core.model.fields import PLAIN_API_PORT
from core.model.loader import is_default
from core.ops.run_lock import new_holder
from core.routeros.errors import CheckError, SwitchError
from core.util.paths import state_folder
from sparkrack.cli.next_step import next_step, print_next
from sparkrack.cli.progress import ProgressDisplay
from sparkrack.engine.journal import log_path
from sparkrack.engine.run_log import run_log
from sparkrack.rebuild.journal import Past, RebuildJournal, RebuildStarted, newest
from sparkrack.rebuild.model import RebuildReport, Request
from sparkrack.rebuild.phase_commands import ForwardedOptions
from sparkrack.rebuild.process_lock import BusyError, exclusive
from sparkrack.rebuild.runner import Environment, Rebuild, rack_state
from sparkrack.rebuild.subcommands import CommandRunner
from sparkrack.rebuild.wait_for_ports import HostPort
from sparkrack.rebuild.workload_cache import WorkloadCache
from sparkrack.rebuild.workloads import CONTAINERS, NodeWorkload
from sparkrack.watch.silences import silenced, silences_of_nodes, silences_of_switches
from switch.bootstrap.first_contact import open_session
from switch.bootstrap.menus import FACTORY_ADDRESS, PLACEHOLDER
from switch.bootstrap.passwords import Password

SILENT_SECONDS = 4 * 3600
"""Seconds for which alerts of a rebuild are silent at most: it may bring images and models."""


def run_rebuild(
    request: Request,
    forwarded: ForwardedOptions,
    containers: frozenset[str],
    stop_units: bool,
    found: dict[str, NodeWorkload],
    screen: ProgressDisplay,
    *,
    timeout: float,
    fresh: bool,
    as_json: bool,
) -> RebuildReport:
    """Run the rebuild, or resume it. `screen`: shows its progress. Raises ClickException when it cannot begin."""

    def say(text: str) -> None:
        screen.say(text, err=as_json)

    own = new_holder(f"rebuild of {request.title}")
    folder = state_folder(request.rack) / "rebuild"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        screen.phase("take the lock of the rebuild")
        with run_log() as log, exclusive(folder, own, timeout, say) as lock:
            past = None if fresh else _past(folder, request, say)
            run = past.began.run if past else own.id
            journal = RebuildJournal(folder, run)
            try:
                if past is None:
                    journal.write(RebuildStarted(run=run, who=own.who, request=request))
                log.keep(log_path(journal.path))
                for line in rack_state(found):
                    say(line)
                caller = CommandRunner(lock, as_json=as_json)
                look = WorkloadCache(Path(request.file), CONTAINERS, timeout, found)
                around = _surroundings(request, forwarded, timeout, say, look, screen)
                drill = Rebuild(request, forwarded, containers, around, caller, journal, past, stop_units)
                rack, work = around.load(), f"rebuild of {request.title}"
                touched = [*silences_of_nodes(rack, request.nodes), *silences_of_switches(rack, request.switches)]
                with silenced(rack, run, work, touched, SILENT_SECONDS, say):
                    return _driven(drill, own.who, _again(request, forwarded, containers, stop_units))
            finally:
                journal.close()
    except BusyError as busy:
        raise click.ClickException(str(busy)) from None
    except BrokenPipeError:
        raise  # the reader of the output has exited
    except OSError as error:
        raise click.ClickException(f"{folder}: no journal can be kept: {error.strerror}; run again") from None


def report_result(report: RebuildReport, *, as_json: bool) -> int:
    """Print the report and the next step, and return the exit code."""
    show(report, Console(highlight=False, markup=False, soft_wrap=True, stderr=as_json))
    if as_json:
        click.echo(report.model_dump_json(by_alias=True, indent=1))
    if report.again:
        print_next(report.again, "to resume", silent=as_json)
    else:
        next_step(["sparkrack", "status"], rack=Path(report.file), silent=as_json)
    return report.code


def _driven(drill: Rebuild, who: str, again: str) -> RebuildReport:
    begin = time.monotonic()
    resumed = drill.next if drill.past else None
    if resumed:
        drill.around.say(f"resuming rebuild {drill.journal.run}, interrupted in phase {resumed}")
    with drill.caller.listening():
        result = drill.run(who)
    return RebuildReport(
        rack=drill.request.rack,
        file=drill.request.file,
        machines=drill.request.machines,
        run=drill.journal.run,
        journal=str(drill.journal.path),
        resumed=resumed,
        result=result,
        seconds=round(time.monotonic() - begin, 1),
        phases=tuple(drill.reports.values()),
        restarted=tuple(drill.restarted),
        again=None if result == "done" else again,
    )


def _past(folder: Path, request: Request, say: Callable[[str], None]) -> Past | None:
    """Return the rebuild to resume: only the newest of the rack counts, since any later one has changed the rack."""
    last = newest(folder)
    if last is None:
        return None
    path, past = last
    if past is None:
        say(f"{path}: is not a journal that can be resumed; starting over")
        return None
    if past.finished:
        return None
    if not past.began.request.resumes(request):
        say(f"an earlier rebuild ({past.began.request.title}) was not finished; this is another one and starts over")
        return None
    return past


def _surroundings(
    request: Request,
    forwarded: ForwardedOptions,
    timeout: float,
    say: Callable[[str], None],
    look: WorkloadCache,
    screen: ProgressDisplay,
) -> Environment:
    file = Path(request.file)

    def now() -> Rack:
        return load(file)

    return Environment(
        load=now,
        look=look,
        works=lambda name: _works(now(), name),
        ports=lambda: _ports(now(), request, forwarded),
        timeout=timeout,
        say=say,
        progress=screen,
        hidden=screen.hidden,
    )


def _ports(rack: Rack, request: Request, forwarded: ForwardedOptions) -> dict[str, tuple[HostPort, ...]]:
    """Return the endpoints of each host; a switch has its declared and its factory address."""
    ports: dict[str, tuple[HostPort, ...]] = {
        name: ((str(rack.nodes[name].address), rack.access.port),) for name in request.nodes
    }
    boxed = forwarded.switch_address or FACTORY_ADDRESS
    for name in request.switches:
        switch = rack.switches[name]
        ports[name] = ((str(switch.address), switch.port), (boxed, PLAIN_API_PORT), (boxed, switch.port))
    return ports


def _works(rack: Rack, name: str) -> bool:
    """Return whether our user can log in over the pinned certificate at the declared address. Nothing else is read."""
    switch = rack.switches[name]
    pinned = switch.tls.sha256 if switch.tls else PLACEHOLDER
    password = Password(switch.password)
    if pinned == PLACEHOLDER or not password.there:
        return False
    try:
        open_session(str(switch.address), switch.port, pinned, switch.user, password.get()).line.close()
    except (SwitchError, CheckError, SecretError):
        return False
    return True


def _again(request: Request, forwarded: ForwardedOptions, containers: frozenset[str], stop_units: bool) -> str:
    """Return the command that resumes the rebuild."""
    rack = () if is_default(Path(request.file)) else ("--rack", request.file)
    named = tuple(word for name in sorted(containers) for word in ("--containers", name))
    own = forwarded.words(nodes=bool(request.nodes), switch=bool(request.switches))
    # A unit that this rebuild has started may run when it is resumed.
    stops = ("--stop-units",) if stop_units or request.units else ()
    return shlex.join(("sparkrack", "rebuild", *request.words, *rack, *named, *stops, *own))


def show(report: RebuildReport, console: Console) -> None:
    """Print the report: phases and times."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("result")
    table.add_column("seconds", justify="right")
    table.add_column("tries", justify="right")
    for one in report.phases:
        style = {"done": "green", "failed": "red", "interrupted": "red"}.get(one.result, "dim")
        table.add_row(one.phase, Text(one.result, style=style), f"{one.seconds:.1f}", str(one.tries))
    console.print(table)
    if report.restarted:
        console.print(f"restarted: {', '.join(report.restarted)}")
    console.print(f"journal: {report.journal}")
    if report.again:
        console.print(report.result, style="bold red")
    else:
        console.print(f"done: {', '.join(report.machines)} in {report.seconds:.0f} s", style="bold")
