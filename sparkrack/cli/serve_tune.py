"""`sparkrack serve tune`: try values of a unit one after the other, and keep those that make it faster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from core.util.command_error import CommandError
from core.util.tables import print_sentence, print_whole
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option, unit_argument
from sparkrack.serving.tune_ledger import LOG_SUFFIX, TuneLedger
from sparkrack.serving.tune_tries import Candidate, parse_tries, shown_value
from sparkrack.serving.unit_tune import UnitTune
from sparkrack.terminal.progress import show_progress


@click.command()
@unit_argument
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="KEY=V1,V2",
    help="A key of the unit, such as args.NAME, env.NAME or memory, and values of it. Can be given repeatedly.",
)
@click.option("--resume", is_flag=True, help="Continue the latest ledger of the unit, after a run that was ended.")
@click.option("--dry", is_flag=True, help="Only print what would be tried, and how long it takes.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@rack_option
def tune(unit: str, tries: tuple[str, ...], resume: bool, dry: bool, yes: bool, rack: Path) -> None:
    """Try values of a unit, one change at a time, and keep those with which it is faster.

    \b
      sparkrack serve tune qwen --try args.max-num-batched-tokens=4096,8192 --try memory=0.85 --dry
      sparkrack serve tune qwen --try args.max-num-batched-tokens=4096,8192 --try memory=0.85
      sparkrack serve tune qwen --resume

    First the unit is recreated as rack.yaml declares it, and measured three times, as by `serve bench --quick`. Then
    each value is tried as by `serve recreate`: gates, start, proof, three measurements. It is kept and written to
    rack.yaml if the median is better by more than the runs before differ. Else the unit goes back. A value that `check`
    refuses is not tried.

    A trial ends at a wrong answer, a hang, an end of the engine, a line of the memory guard or of a GPU fault, and
    where a node has less than 1 GiB above the floor of the guard left. After a GPU fault no further value is tried.

    The unit does not serve its clients meanwhile. Each step is in a ledger on this machine. Ctrl-C ends the trial and
    brings the unit back; after a kill, --resume or `serve recreate` do.

    Exit 0 when all values are judged and the unit serves as rack.yaml declares it, else 1.
    """
    if bool(tries) == resume:
        raise click.UsageError("name values with --try, or continue with --resume")
    with show_progress(silent=False) as screen:
        work = UnitTune(rack, unit, screen)
        earlier = work.resume() if resume else None
        wanted = earlier.open_tries if earlier else parse_tries(tries)
        found = work.candidates(wanted)
        for line in _plan_lines(unit, found, work.expected_time(found)):
            screen.say(line)
        if not resume and all(one.refused for one in found):
            raise CommandError("nothing can be tried")
        if dry:
            sys.exit(0)
        if not yes:
            screen.require_consent("Do this?")
        ledger = work.run(wanted, earlier)
    print_ledger(ledger, Console(highlight=False))
    if not ledger.is_done:
        next_step(["sparkrack", "serve", "tune", unit, "--resume"], "tries what is left", rack=rack)
    sys.exit(0 if ledger.is_done else 1)


def _plan_lines(unit: str, found: Sequence[Candidate], expected: str) -> list[str]:
    values = [f"  {one.tried}{f': not tried: {one.refused}' if one.refused else ''}" for one in found]
    return [f"tune unit {unit}, which does not serve its clients meanwhile: {expected}", *values]


def print_ledger(ledger: TuneLedger, console: Console) -> None:
    """Print how each value was judged: a table that a terminal of 80 columns has room for, then the reasons."""
    table = Table(box=None, pad_edge=False)
    for title in ("value", "tokens/s", "start", "memory left", "judged"):
        table.add_column(title, justify="right" if title in ("start", "memory left") else "left", no_wrap=True)
    reasons: list[str] = []
    for one in ledger.judged:
        value = f"{one.key}={shown_value(one.value)}" if one.key else "as declared"
        table.add_row(
            value,
            " ".join(map(_shown_speed, one.tokens_s)) or "-",
            "-" if one.start_s is None else f"{one.start_s:.0f} s",
            "-" if one.memory_left is None else f"{one.memory_left:.1f} GiB",
            f"{one.verdict}: {one.cause}" if one.cause else one.verdict,
        )
        if one.reason:
            reasons.append(f"{value}: {one.reason}")
    print_whole(console, table)
    judged = {(one.key, str(one.value)) for one in ledger.judged}
    left = [
        f"{one}: {'is tried again by --resume' if (one.key, str(one.value)) in judged else 'not tried'}"
        for one in ledger.open_tries
    ]
    for sentence in (*reasons, *left):
        print_sentence(console, sentence)
    if ledger.ended and ledger.ended.reason:
        click.echo(f"ended: {ledger.ended.reason}", err=True)
    click.echo(f"ledger: {ledger.path}")
    click.echo(f"log: {ledger.path.with_suffix(LOG_SUFFIX)}")


def _shown_speed(tokens_s: float) -> str:
    """Return tokens a second with three digits at least."""
    return f"{tokens_s:.{0 if tokens_s >= 100 else 1 if tokens_s >= 10 else 2}f}"
