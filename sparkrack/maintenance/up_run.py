"""Sequence of `sparkrack up`: take a recipe into the rack file, see what is left to do, ask once, do it, verify."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.model import ConfigError, Rack, load, yaml_editor
from core.model.loader import is_default
from core.model.yaml_reader import parse
from core.util.command_error import CommandError
from core.util.paths import state_folder
from core.util.screen import Screen
from serving.options import served_units
from sparkrack.engine.subcommands import CommandResult, CommandRunner
from sparkrack.maintenance.rebuild_run import run_recorded, switch_works
from sparkrack.rebuild import phase_commands
from sparkrack.rebuild.bring_up import BringUp, PendingWork, read_pending
from sparkrack.rebuild.journal import Past, RebuildFinished, RebuildJournal, newest
from sparkrack.rebuild.model import RebuildReport, Request
from sparkrack.rebuild.phase_commands import ForwardedOptions
from sparkrack.rebuild.runner import Environment
from sparkrack.rebuild.workloads import CONTAINERS, NodeReachability, query_workloads


@dataclass(frozen=True)
class RecipeOptions:
    """Where a recipe is looked for, and what it may not say: tokens of the longest sequence, sequences at once, and the
    share of a node.
    """

    registries: Sequence[str] = ()
    context: int | None = None
    sequences: int | None = None
    memory: float | None = None

    def words(self) -> list[str]:
        """Return what the recipe does not say as options of `serve import`."""
        given = (("--context", self.context), ("--sequences", self.sequences), ("--memory", self.memory))
        return [word for option, value in given if value is not None for word in (option, str(value))]


@dataclass(frozen=True)
class RecipeImport:
    """A recipe as entries of a rack file. `unit`: its name there."""

    unit: str
    entries: Mapping[str, Any]


def import_recipe(rack: Rack, recipe: str, options: RecipeOptions, *, write: bool) -> RecipeImport:
    """Run `serve import` for the first nodes of the rack. `write`: its files are written beside the rack file. Raises
    CommandError when the recipe does not come over.
    """
    words = ["serve", "import", _make_absolute(recipe), "--rack", str(rack.source.absolute()), *options.words()]
    for registry in options.registries:
        name, equals, place = registry.rpartition("=")
        words += ["--registry", f"{name}{equals}{_make_absolute(place)}"]
    with tempfile.TemporaryDirectory(prefix="sparkrack-") as nowhere:
        folder = rack.source.absolute().parent if write else Path(nowhere)
        done = CommandRunner(None, as_json=False).call(words, keep=True, folder=folder)
    if done.exit:
        raise CommandError(
            f"recipe {recipe}: `sparkrack serve import` refuses it, see above; up takes --context, --sequences "
            "and --memory; what serve import prints with other options belongs into the rack file by hand; then: "
            "sparkrack up --serve UNIT"
        )
    entries = parse(done.output.decode()).data
    (unit,) = entries["serving"]["units"]
    return RecipeImport(unit, entries)


def _make_absolute(place: str) -> str:
    """Return a path that is there as one that does not depend on the folder; a name or a URL as it is."""
    path = Path(place).expanduser()
    return str(path.absolute()) if path.exists() else place


def take_recipe(file: Path, recipe: str, options: RecipeOptions, say: Callable[[str], None], *, dry: bool) -> str:
    """Add the unit of a recipe to the rack file, unless it has that unit; return its name. Raises CommandError, or
    ConfigError when the rack file does not take it; then the file is as it was.
    """
    rack = load(file)
    found = import_recipe(rack, recipe, options, write=not dry)
    if found.unit in served_units(rack):
        say(f"unit {found.unit} stands in {file} already, and stays as it is there")
        return found.unit
    before = yaml_editor.snapshot(file)
    after = before.with_entries(found.entries)
    nodes = ", ".join(found.entries["serving"]["units"][found.unit]["nodes"])
    say(f"{file}: unit {found.unit} {'would be' if dry else 'is'} added on {nodes}, with its model and its image")
    if not dry:
        written = before.write(after.data)
        try:
            load(file)
        except ConfigError:
            written.write(before.data)
            say(f"{file}: is as it was before, since it cannot be used with the unit:")
            raise
    return found.unit


@dataclass(frozen=True)
class UpRun:
    """One `sparkrack up`. `again`: the command that resumes it. `ask`: see `BringUp`. `wait`: seconds for machines."""

    rack: Rack
    request: Request
    forwarded: ForwardedOptions
    again: str
    ask: Callable[[str], None] | None
    screen: Screen
    wait: float
    as_json: bool = False
    caller: CommandRunner = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "caller", CommandRunner(None, as_json=self.as_json))

    def finished(self, *, fresh: bool) -> str:
        """Return when the rack was verified, if a run of this request has ended well and nothing is left to do now;
        empty otherwise. Raises CommandError when no journal can be read.
        """
        past = None if fresh else self._read_latest_run()
        if past is None or not past.finished or not past.began.request.resumes(self.request):
            return ""
        pending = self._read_pending_work(quiet=True)
        if pending is None or pending.lines:
            return ""
        (end,) = [line for line in past.lines if isinstance(line, RebuildFinished) and line.result == "done"]
        return f"{end.at:%Y-%m-%d %H:%M} UTC"

    def run(self, *, fresh: bool) -> RebuildReport:
        """Go through the phases. Raises CommandError when it cannot begin."""

        def make(around: Environment, caller: CommandRunner, journal: RebuildJournal, past: Past | None) -> BringUp:
            return BringUp(
                self.request, self.forwarded, frozenset(), around, caller, journal, past, stop_units=True, ask=self.ask
            )

        return run_recorded(
            "up",
            self.request,
            self.forwarded,
            make,
            self.again,
            {},
            self.screen,
            timeout=self.wait,
            fresh=fresh,
            as_json=self.as_json,
        )

    def show(self) -> int:
        """Show what would be done, and change nothing. Return the exit code: 2 when there is something to do, 1 when
        something is unknown.
        """
        workloads = query_workloads(self.rack, self.request.nodes, CONTAINERS)
        absent = [
            name
            for name in self.request.nodes
            if workloads[name].reachability in (NodeReachability.NOT_OURS, NodeReachability.AWAY)
        ]
        new = [name for name in self.request.switches if not switch_works(self.rack, name)]
        codes = []
        if absent:
            some = self.request.model_copy(update={"nodes": tuple(absent)})
            codes.append(
                self._call_command((*phase_commands.bootstrap_nodes(some, self.forwarded), "--dry"), keep=False).exit
            )
        for name in new:
            words = (*phase_commands.bootstrap_switch(self.request, self.forwarded, name), "--dry")
            codes.append(self._call_command(words, keep=False).exit)
        if codes:
            self._say_line(f"first contact with {', '.join((*absent, *new))}; the plan of all can be made after it")
            return 2 if all(code in (0, 2) for code in codes) else 1
        pending = self._read_pending_work(quiet=False)
        if pending is None:
            return 1
        for line in ("then, in this order:", *(f"  {line}" for line in (*pending.lines, "verify"))):
            self._say_line(line)
        return 2 if pending.lines else 0

    def _read_latest_run(self) -> Past | None:
        folder = state_folder(self.request.rack) / "rebuild"
        try:
            found = newest(folder)
        except OSError as error:
            raise CommandError(f"{folder}: no journal can be read: {error.strerror}") from None
        return found[1] if found else None

    def _read_pending_work(self, *, quiet: bool) -> PendingWork | None:
        with tempfile.TemporaryDirectory(prefix="sparkrack-") as folder:
            return read_pending(self.rack, self.request, self._call_command, Path(folder) / "up.plan", quiet=quiet)

    def _call_command(self, words: Sequence[str], keep: bool) -> CommandResult:
        if keep:
            self.screen.phase(f"run sparkrack {words[0]}")
        with nullcontext() if keep else self.screen.hidden():
            return self.caller.call(words, keep=keep)

    def _say_line(self, text: str) -> None:
        self.screen.say(text, err=self.as_json)


def up_command(rack: Path, apart: tuple[str, ...], serve: str | None, forwarded: ForwardedOptions, *, yes: bool) -> str:
    """Return the command line that resumes a run. `apart`: the hosts that are left out."""
    words = ["sparkrack", "up", *(("--serve", serve) if serve else ()), *(("-y",) if yes else ())]
    words += [word for name in apart for word in ("--exclude", name)]
    named = () if is_default(rack) else ("--rack", str(rack))
    return shlex.join((*words, *named, *forwarded.words()))
