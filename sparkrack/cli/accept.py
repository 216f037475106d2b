"""`sparkrack accept`: what a real rack shows of the claims that this project rests on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import click
from rich.console import Console

from core.claims.claims import UnknownClaimError, known_claims, select_claims
from core.model import Rack, load
from core.model.selection import select
from core.util.provenance import origin
from sparkrack.accept import render
from sparkrack.accept.bundle import Recording
from sparkrack.accept.model import AcceptReport, RunLevel
from sparkrack.accept.next_command import next_command
from sparkrack.accept.output_files import DOCUMENT, PAGE, make_places, write_answers, write_report
from sparkrack.accept.run import run_accept
from sparkrack.accept.trials import Spare, SpareError, spare_of
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option, rack_option
from sparkrack.engine.ssh_locking import lock_if_reachable
from sparkrack.status.render import WIDTH
from sparkrack.terminal.progress import show_progress, warn
from sparkrack.terminal.prompts import ask_before


def _complete_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [claim.id for claim in known_claims() if claim.id.startswith(incomplete)]


@click.command()
@rack_option
@limit_option
@exclude_option
@click.option(
    "--level",
    type=click.Choice(["look", "change"]),
    default="look",
    show_default=True,
    help="What an observation may do to the rack: `look` only reads, `change` also changes the cage of --spare.",
)
@click.option(
    "--spare",
    metavar="SWITCH/CAGE",
    help="A cage that rack.yaml does not declare and no host needs, for --level change.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before the switch is changed.")
@click.option(
    "--claim",
    "ids",
    multiple=True,
    metavar="ID",
    shell_complete=_complete_ids,
    help="Only this claim of docs/unproven.md; may be given again.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help=f"Write {PAGE} and {DOCUMENT} with all evidence into this folder.",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what the rack answered, anonymized, into this new file (.tar.gz).",
)
@json_option
@quiet_option
def accept(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    level: RunLevel,
    spare: str | None,
    yes: bool,
    ids: tuple[str, ...],
    output: Path | None,
    bundle: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read from a real rack which claims about the hardware hold: each is observed, refuted or not observed.

    \b
      sparkrack accept --output accept
      sparkrack accept --output accept --level change --spare crs812/qsfp56-1
      sparkrack accept --claim switch.monitor.fields --claim preflight.dmi
      sparkrack accept --json | jq '.claims[] | select(.result == "refuted")'
      sparkrack accept --bundle rack.tar.gz

    The claims are those of docs/unproven.md. A claim is not observed when a host does not answer, when its answer is
    not understood, or when it needs a change or load. `look` changes nothing and takes no lock. `change` holds the lock
    of the rack, changes link settings of one spare cage in transactions that are rolled back, and proves that the
    switch is as it was.
    Exit 0 when no claim is refuted, 2 when one is, 1 when no host could be read, or when the switch is not proven to be
    as it was.
    """
    try:
        claims = select_claims(ids)
    except UnknownClaimError as fault:
        raise click.UsageError(f"--claim {fault}") from None
    found = load(rack)
    machines = select(found, limit, exclude).machines
    cage = _spare_cage(found, machines, level, spare)
    if cage and not yes:
        ask_before(f"Change link settings of {spare}, and roll them back?", "-y goes on without a question")
    make_places(output, bundle)  # now: minutes later the readings would be for nothing
    recording = Recording() if bundle else None
    begun = origin(rack)
    with show_progress(silent=as_json or quiet) as progress:
        lock = _lock_of(found, f"accept on {spare}")
        report = run_accept(found, machines, claims, begun, cage, lock=lock, recording=recording, progress=progress)
    if output:
        write_report(output, report)
    if bundle and recording:
        write_answers(bundle, found, report, recording)
    _show_report(report, output, bundle, as_json=as_json, quiet=quiet)
    then = next_command(report, ids, output)
    scope = {"limit": limit, "exclude": (*exclude, *then.without)} if then.same_hosts else {}
    next_step(then.words, then.reason, rack=rack, silent=as_json or quiet, **scope)
    sys.exit(report.exit)


def _spare_cage(rack: Rack, machines: Sequence[str], level: RunLevel, spare: str | None) -> Spare | None:
    """The cage that may be changed; None for the level `look`. Raises UsageError."""
    if (level == "change") != (spare is not None):
        raise click.UsageError("--level change and --spare SWITCH/CAGE go together: settings of that cage are changed")
    if spare is None:
        return None
    try:
        return spare_of(rack, spare, machines)
    except SpareError as fault:
        raise click.UsageError(f"--spare {fault}") from None


def _lock_of(rack: Rack, what: str) -> Callable[[], AbstractContextManager[Callable[[], str]]]:
    """What holds the lock of the rack if its head node answers: safe mode of the switch keeps other runs out in any
    case."""

    def go_on_without_lock(why: str) -> None:
        warn(f"{why}; going on without the lock")

    return lambda: lock_if_reachable(rack, what, go_on_without_lock)


def _show_report(report: AcceptReport, output: Path | None, bundle: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Print the report, and the files that were written."""
    if as_json:
        click.echo(report.to_json())
    else:
        width = None if sys.stdout.isatty() else WIDTH
        render.show(report, Console(highlight=False, markup=False, width=width), quiet=quiet)
        for path in (output and output / PAGE, bundle):
            if path:
                click.echo(str(path))
    if bundle:
        click.echo(f"{bundle}: read it before you send it: tar xzf {bundle}", err=True)
