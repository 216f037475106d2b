"""How `sparkrack rebuild` goes: resume or begin, drive the phases, tell what came of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkrack.fleet import Rack, SecretError, load
from sparkrack.fleet.load import DEFAULT
from sparkrack.fleet.places import state_folder
from sparkrack.ops.lock import me
from sparkrack.rebuild.child import Caller
from sparkrack.rebuild.drive import Rebuild, Surroundings, standing
from sparkrack.rebuild.journal import Began, Journal, Past, newest
from sparkrack.rebuild.looking import Looking
from sparkrack.rebuild.model import Rebuilt, Request
from sparkrack.rebuild.service import CONTAINERS, Service
from sparkrack.rebuild.single import BusyError, alone
from sparkrack.rebuild.steps import Passing
from sparkrack.rebuild.waiting import Door
from switch.bootstrap.contact import opened
from switch.bootstrap.passwords import Password
from switch.bootstrap.tables import FACTORY_ADDRESS, PLACEHOLDER
from switch.errors import CheckError, SwitchError

PLAIN_API = 8728


def rebuilt(
    request: Request,
    passing: Passing,
    containers: frozenset[str],
    found: dict[str, Service],
    *,
    patience: float,
    fresh: bool,
    as_json: bool,
) -> int:
    """The exit code. Raises ClickException when it cannot begin."""

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    mine = me(f"rebuild of {request.title}")
    folder = state_folder(request.rack) / "rebuild"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with alone(folder, mine, patience, say) as lock:
            past = None if fresh else _past(folder, request, say)
            run = past.began.run if past else mine.id
            journal = Journal(folder, run)
            try:
                if past is None:
                    journal.write(Began(run=run, who=mine.who, request=request))
                for line in standing(found):
                    say(line)
                caller = Caller(lock, as_json=as_json)
                around = _surroundings(
                    request, passing, patience, say, Looking(Path(request.file), CONTAINERS, patience, found)
                )
                drill = Rebuild(request, passing, containers, around, caller, journal, past)
                told = _driven(drill, mine.who, _again(request, passing, containers))
            finally:
                journal.close()
    except BusyError as busy:
        raise click.ClickException(str(busy)) from None
    except BrokenPipeError:
        raise  # whoever read along has gone
    except OSError as error:
        raise click.ClickException(f"{folder}: no journal can be kept: {error.strerror}; run again") from None
    show(told, Console(highlight=False, markup=False, soft_wrap=True, stderr=as_json))
    if as_json:
        click.echo(told.model_dump_json(by_alias=True, indent=1))
    return told.code


def _driven(drill: Rebuild, who: str, again: str) -> Rebuilt:
    begin = time.monotonic()
    resumed = drill.next if drill.past else None
    if resumed:
        drill.around.say(f"goes on with rebuild {drill.journal.run}, which was cut off in phase {resumed}")
    with drill.caller.listening():
        result = drill.run(who)
    return Rebuilt(
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
    """The rebuild to go on with: only the newest of the rack counts, since any later one has moved things."""
    last = newest(folder)
    if last is None:
        return None
    path, past = last
    if past is None:
        say(f"{path}: is no journal that can be gone on with; beginning anew")
        return None
    if past.finished:
        return None
    if past.began.request != request:
        say(f"an earlier rebuild ({past.began.request.title}) was not finished; this is another one, and begins anew")
        return None
    return past


def _surroundings(
    request: Request, passing: Passing, patience: float, say: Callable[[str], None], look: Looking
) -> Surroundings:
    file = Path(request.file)

    def now() -> Rack:
        return load(file)

    return Surroundings(
        load=now,
        look=look,
        works=lambda name: _works(now(), name),
        doors=lambda: _doors(now(), request, passing),
        patience=patience,
        say=say,
    )


def _doors(rack: Rack, request: Request, passing: Passing) -> dict[str, tuple[Door, ...]]:
    """Where each machine may answer; a switch at its declared address, or as it comes from its box."""
    doors: dict[str, tuple[Door, ...]] = {
        name: ((str(rack.nodes[name].address), rack.access.port),) for name in request.nodes
    }
    boxed = passing.switch_address or FACTORY_ADDRESS
    for name in request.switches:
        switch = rack.switches[name]
        doors[name] = ((str(switch.address), switch.port), (boxed, PLAIN_API), (boxed, switch.port))
    return doors


def _works(rack: Rack, name: str) -> bool:
    """Whether our user is let in over the pinned certificate at the declared address. Nothing else is asked."""
    switch = rack.switches[name]
    pinned = switch.tls.sha256 if switch.tls else PLACEHOLDER
    password = Password(switch.password)
    if pinned == PLACEHOLDER or not password.there:
        return False
    try:
        opened(str(switch.address), switch.port, pinned, switch.user, password.get()).line.close()
    except (SwitchError, CheckError, SecretError):
        return False
    return True


def _again(request: Request, passing: Passing, containers: frozenset[str]) -> str:
    """The command that goes on."""
    rack = ("--rack", request.file) if Path(request.file) != DEFAULT.absolute() else ()
    named = tuple(word for name in sorted(containers) for word in ("--containers", name))
    mine = passing.words(nodes=bool(request.nodes), switch=bool(request.switches))
    return shlex.join(("sparkrack", "rebuild", *request.words, *rack, *named, *mine))


def show(told: Rebuilt, console: Console) -> None:
    """The report for a person: phases, times, and how to go on."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("result")
    table.add_column("seconds", justify="right")
    table.add_column("tries", justify="right")
    for one in told.phases:
        style = {"done": "green", "failed": "red", "cut off": "red"}.get(one.result, "dim")
        table.add_row(one.phase, Text(one.result, style=style), f"{one.seconds:.1f}", str(one.tries))
    console.print(table)
    if told.restarted:
        console.print(f"restarted: {', '.join(told.restarted)}")
    console.print(f"journal: {told.journal}")
    if told.again:
        console.print(f"{told.result}; to go on: {told.again}", style="bold red")
    else:
        console.print(f"done: {', '.join(told.machines)} in {told.seconds:.0f} s", style="bold")
