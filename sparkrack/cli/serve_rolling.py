"""`sparkrack serve restart|recreate`: one unit, or several one after the other, so that never two are away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparkrack.cli.loading import loading
from sparkrack.cli.options import declared_unit, rack_option, units
from sparkrack.cli.serve_run import ServeRun, UnitRun, anyway_option, exit_with_next, hold_rack, timeout_option

if TYPE_CHECKING:
    from core.model import Rack
    from core.model.serving import ServingUnit
    from sparkrack.serving.keeper import KeeperError, KeeperStatus

    Answers = Mapping[str, KeeperStatus | KeeperError]

_arguments = (
    click.argument("unit", nargs=-1, metavar="[UNIT]...", shell_complete=units),
    click.option("--all", "every", is_flag=True, help="Each unit with wish: up, in the order of rack.yaml."),
    click.option(
        "--although-down",
        "although",
        multiple=True,
        metavar="UNIT",
        shell_complete=units,
        help="With several units: go on although this other one does not serve; repeatable.",
    ),
    click.option("--dry", is_flag=True, help="Print what would be away and how long; change nothing."),
    anyway_option,
    timeout_option,
    rack_option,
)


def _with_arguments(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in reversed(_arguments):
        function = decorate(function)
    return function


@click.command()
@_with_arguments
def restart(anyway: bool, timeout: int | None, **given: Any) -> None:
    """Stop a unit, then start it: `serve stop` and `serve start`.

    \b
      sparkrack serve restart qwen
      sparkrack serve restart --all --dry

    It is not started when a rank is not confirmed as stopped. The restart budget of the unit is not used.

    Several units are restarted one at a time: the next one is stopped when a completion has proven the one before. It
    ends at the first that fails, and before the first when a unit with `wish: up` that is not named does not serve.

    Exit 0 when a completion has proven each unit, else 1.
    """
    _run("restart", lambda work, held: work.under(held, "restart", work.stop, work.start(anyway, timeout)), **given)


@click.command()
@_with_arguments
def recreate(anyway: bool, timeout: int | None, **given: Any) -> None:
    """Stop a unit, write its files as rack.yaml declares them, then start it.

    \b
      sparkrack serve recreate qwen
      sparkrack serve recreate qwen llama

    Between stop and start it runs `sparkrack apply -y --only serving` for the nodes of the unit, under its own lock.
    When the unit does not serve with the new files, those of its last good start are put back, it is started with them,
    and the reason is printed; rack.yaml is not changed. Several units: as `serve restart`.

    Exit 0 when a completion has proven each unit as declared, else 1: also when the former version serves again.
    """
    from sparkrack.cli.serve_recreate import UnitRecreation

    def turn(work: UnitRun, held: ServeRun) -> bool:
        return work.under(held, "recreate", UnitRecreation(work, given["rack"], anyway, timeout).run)

    _run("recreate", turn, **given)


def _run(
    verb: str,
    turn: Callable[[UnitRun, ServeRun], bool],
    unit: tuple[str, ...],
    every: bool,
    although: tuple[str, ...],
    dry: bool,
    rack: Path,
) -> None:
    with loading():
        from core.model import load

    if bool(unit) == every:
        raise click.UsageError("name one or more units, or pass --all")
    loaded = load(rack)
    chosen = _chosen(loaded, unit, every)
    ignored = [declared_unit(loaded, name).name for name in although]
    if wrong := [name for name in ignored if name in {one.name for one in chosen}]:
        raise click.UsageError(f"--although-down is for a unit that is not named; omit it for {wrong[0]}")
    if dry:
        sys.exit(_show_away(loaded, verb, chosen))
    works = {one.name: UnitRun(rack, one.name) for one in chosen}
    if len(chosen) == 1:
        (work,) = works.values()
        exit_with_next(work, work.attempt(lambda: _alone(work, verb, turn)))
    if any(one.wish == "down" for one in chosen):
        name = next(one.name for one in chosen if one.wish == "down")
        raise click.ClickException(f"unit {name} has wish: down in rack.yaml; of several units each has wish: up")
    with hold_rack(loaded, verb, chosen) as held:
        rolling = RollingRun(loaded, chosen, ignored, held)
        work, done = rolling.run(works, turn)
    exit_with_next(work, done)


def _alone(work: UnitRun, verb: str, turn: Callable[[UnitRun, ServeRun], bool]) -> bool:
    with hold_rack(work.rack, verb, [work.unit]) as held:
        return turn(work, held)


def _chosen(rack: Rack, names: tuple[str, ...], every: bool) -> list[ServingUnit]:
    if not every:
        return [declared_unit(rack, name) for name in dict.fromkeys(names)]
    found = [unit for unit in (rack.serving.units.values() if rack.serving else ()) if unit.wish == "up"]
    if not found:
        raise click.ClickException(f"{rack.source} has no unit with wish: up")
    return found


def _show_away(rack: Rack, verb: str, chosen: Sequence[ServingUnit]) -> int:
    """Print of each unit how long it would be away; return 1 when that of one cannot be asked."""
    from roles.serving.away import away
    from sparkrack.serving.keeper import KeeperError, ask_keepers

    code = 0
    for name, answer in ask_keepers(rack, chosen).items():
        if isinstance(answer, KeeperError):
            click.echo(f"{name}: {answer}", err=True)
            code = 1
        else:
            click.echo(f"unit {name} is {answer.state}; `sparkrack serve {verb} {name}`: {away(answer.figures)}")
    return code


class RollingRun:
    """Several units, one at a time. `ignored`: other units that need not serve."""

    def __init__(self, rack: Rack, chosen: Sequence[ServingUnit], ignored: Iterable[str], held: ServeRun) -> None:
        self.rack, self.chosen, self.ignored, self.held = rack, list(chosen), set(ignored), held
        declared = rack.serving.units.values() if rack.serving else ()
        self.others = [one for one in declared if one.wish == "up" and one not in self.chosen]

    def run(self, works: Mapping[str, UnitRun], turn: Callable[[UnitRun, ServeRun], bool]) -> tuple[UnitRun, bool]:
        """Return the unit at which it ended, and whether all were done. Raises ClickException, as `UnitRun.under`."""
        from sparkrack.serving.keeper import SERVING, STOPPED

        answers = self._ask()
        down = [one for one in self.chosen if _state(answers[one.name]) not in SERVING]
        for one in down:
            if _state(answers[one.name]) not in STOPPED:
                raise click.ClickException(f"{_words(one.name, answers)}; wait until it serves; nothing was changed")
        # A unit that is away already comes first: then none is taken away beside it.
        queue = [*down, *(one for one in self.chosen if one not in down)]
        for number, one in enumerate(queue):
            work, left = works[one.name], queue[number:]
            # The first unit is taken away, or was away before: each other one must serve.
            away = {unit.name for unit in down[number:]} | {one.name}
            if number:
                answers = self._ask()
            if fault := self._fault(answers, away):
                what = "nothing was changed" if not number else _untouched(left)
                raise click.ClickException(f"{fault}; {what}")
            done = False
            try:
                done = work.attempt(partial(turn, work, self.held))
            finally:
                if not done and left[1:]:
                    self.held.screen.warn(_untouched(left[1:]))
            if not done:
                return work, False
        return work, True

    def _ask(self) -> Answers:
        from sparkrack.serving.keeper import ask_keepers

        return ask_keepers(self.rack, [*self.others, *self.chosen], self.held.screen)

    def _fault(self, answers: Answers, away: set[str]) -> str:
        """Return which unit does not serve and is not expected to be away; empty when none."""
        from sparkrack.serving.keeper import SERVING

        for name, answer in answers.items():
            if name not in away | self.ignored and _state(answer) not in SERVING:
                own = name in {one.name for one in self.chosen}
                option = "" if own else f", or go on with --although-down {name}"
                return f"{_words(name, answers)}; `sparkrack serve start {name}`{option}"
        return ""


def _state(answer: KeeperStatus | KeeperError) -> str:
    return getattr(answer, "state", "unknown")


def _words(name: str, answers: Answers) -> str:
    answer = answers[name]
    return f"unit {name} is {_state(answer)}: {getattr(answer, 'reason', answer)}"


def _untouched(left: Sequence[ServingUnit]) -> str:
    return f"not touched: {', '.join(one.name for one in left)}"
