"""Sequence of `sparkrack rebuild`: resume or begin, run the phases."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from core.model import Rack, SecretError, load
from core.model.fields import PLAIN_API_PORT
from core.model.loader import is_default
from core.ops.run_lock import new_holder
from core.routeros.errors import CheckError, SwitchError
from core.ssh.node_shells import open_shells
from core.ssh.own_node import own_node
from core.util.command_error import CommandError
from core.util.paths import state_folder
from core.util.screen import Screen
from serving.running_engines import describe_unit
from sparkrack.engine.journal import log_path
from sparkrack.engine.run_log import run_log
from sparkrack.engine.silences import silenced, silences_of_nodes, silences_of_switches
from sparkrack.engine.subcommands import CommandRunner
from sparkrack.rebuild.journal import Past, RebuildJournal, RebuildStarted, newest
from sparkrack.rebuild.model import RebuildReport, Request
from sparkrack.rebuild.phase_commands import ForwardedOptions, affected_nodes, asked_besides
from sparkrack.rebuild.process_lock import BusyError, exclusive
from sparkrack.rebuild.runner import Environment, Rebuild, judge_workloads, rack_state
from sparkrack.rebuild.wait_for_ports import HostPort
from sparkrack.rebuild.workload_cache import WorkloadCache
from sparkrack.rebuild.workloads import ANSWER_SECONDS, CONTAINERS, NodeWorkload, query_workloads
from switch.bootstrap.first_contact import open_session
from switch.bootstrap.menus import FACTORY_ADDRESS, PLACEHOLDER
from switch.bootstrap.passwords import Password

SILENT_SECONDS = 4 * 3600
"""Seconds for which alerts of a rebuild are silent at most: it may bring images and models."""


MakeRebuild = Callable[[Environment, CommandRunner, RebuildJournal, Past | None], Rebuild]
"""Makes the run from its surroundings and from the one that it resumes."""


def rebuild_hosts(
    rack: Rack,
    request: Request,
    forwarded: ForwardedOptions,
    containers: Sequence[str],
    stop_units: bool,
    screen: Screen,
    *,
    timeout: float,
    fresh: bool,
    as_json: bool,
) -> RebuildReport:
    """Judge what runs on the nodes that a rebuild touches, and run it, or resume it. `containers`: nodes whose
    containers may end. `timeout`: seconds to wait for machines. Raises CommandError when it cannot begin.
    """
    nodes = affected_nodes(rack, request)
    screen.phase("count the containers", nodes)
    workloads = query_workloads(rack, nodes, CONTAINERS, timeout, asked_besides(rack, request))
    units, blockers = judge_workloads(rack, request, workloads, containers, stop_units)
    if blockers:
        raise CommandError("\n".join((*blockers, "nothing was begun")))
    for name in units:
        until = "until phase start" if name in request.units else "and stays down, as rack.yaml has no state: up"
        screen.say(f"{describe_unit(rack, name)} is stopped on all its nodes {until}", err=as_json)
    named = frozenset(containers)

    def make(around: Environment, caller: CommandRunner, journal: RebuildJournal, past: Past | None) -> Rebuild:
        return Rebuild(request, forwarded, named, around, caller, journal, past, stop_units)

    return run_recorded(
        "rebuild",
        request,
        forwarded,
        make,
        _resume_command(request, forwarded, named, stop_units),
        workloads,
        screen,
        timeout=timeout,
        fresh=fresh,
        as_json=as_json,
    )


def run_recorded(
    verb: str,
    request: Request,
    forwarded: ForwardedOptions,
    make: MakeRebuild,
    again: str,
    found: dict[str, NodeWorkload],
    screen: Screen,
    *,
    timeout: float,
    fresh: bool,
    as_json: bool,
) -> RebuildReport:
    """Run what `make` returns, or resume it, with lock and journal. `again`: the command that resumes it. `found`: the
    workloads that were just read. Raises CommandError when it cannot begin.
    """

    def say(text: str) -> None:
        screen.say(text, err=as_json)

    own = new_holder(f"{verb} of {request.title}")
    folder = state_folder(request.rack) / "rebuild"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        screen.phase(f"take the lock of the {verb}")
        with run_log() as log, exclusive(folder, own, timeout, say) as lock:
            past = None if fresh else _rebuild_to_resume(folder, request, say)
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
                around = _make_environment(request, forwarded, timeout, say, look, screen)
                drill = make(around, caller, journal, past)
                rack, work = around.load(), f"{verb} of {request.title}"
                touched = [*silences_of_nodes(rack, request.nodes), *silences_of_switches(rack, request.switches)]
                with silenced(rack, run, work, touched, SILENT_SECONDS, say):
                    return _run_phases(verb, drill, own.who, again)
            finally:
                journal.close()
    except BusyError as busy:
        raise CommandError(str(busy)) from None
    except BrokenPipeError:
        raise  # the reader of the output has exited
    except OSError as error:
        raise CommandError(f"{folder}: no journal can be kept: {error.strerror}; run again") from None


def _run_phases(verb: str, drill: Rebuild, who: str, again: str) -> RebuildReport:
    begin = time.monotonic()
    resumed = drill.next if drill.past else None
    if resumed:
        drill.around.say(f"resuming {verb} {drill.journal.run}, interrupted in phase {resumed}")
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


def _rebuild_to_resume(folder: Path, request: Request, say: Callable[[str], None]) -> Past | None:
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


def _make_environment(
    request: Request,
    forwarded: ForwardedOptions,
    timeout: float,
    say: Callable[[str], None],
    look: WorkloadCache,
    screen: Screen,
) -> Environment:
    file = Path(request.file)

    def now() -> Rack:
        return load(file)

    def own(names: Sequence[str]) -> str | None:
        with open_shells(now(), names, ANSWER_SECONDS) as shells:
            return own_node(shells)

    return Environment(
        load=now,
        own=own,
        look=look,
        works=lambda name: switch_works(now(), name),
        ports=lambda: _host_endpoints(now(), request, forwarded),
        timeout=timeout,
        say=say,
        progress=screen,
        hidden=screen.hidden,
    )


def _host_endpoints(rack: Rack, request: Request, forwarded: ForwardedOptions) -> dict[str, tuple[HostPort, ...]]:
    """Return the endpoints of each host; a switch has its declared and its factory address."""
    ports: dict[str, tuple[HostPort, ...]] = {
        name: ((str(rack.nodes[name].address), rack.access.port),) for name in request.nodes
    }
    boxed = forwarded.switch_address or FACTORY_ADDRESS
    for name in request.switches:
        switch = rack.switches[name]
        ports[name] = ((str(switch.address), switch.port), (boxed, PLAIN_API_PORT), (boxed, switch.port))
    return ports


def switch_works(rack: Rack, name: str) -> bool:
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


def _resume_command(request: Request, forwarded: ForwardedOptions, containers: frozenset[str], stop_units: bool) -> str:
    """Return the command that resumes the rebuild."""
    rack = () if is_default(Path(request.file)) else ("--rack", request.file)
    named = tuple(word for name in sorted(containers) for word in ("--containers", name))
    own = forwarded.words(nodes=bool(request.nodes), switch=bool(request.switches))
    # A unit that this rebuild has started may run when it is resumed.
    stops = ("--stop-units",) if stop_units or request.units else ()
    return shlex.join(("sparkrack", "rebuild", *request.words, *rack, *named, *stops, *own))
