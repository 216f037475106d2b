"""`sparkrack accept`: what a real rack shows of the claims that this project rests on."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from sparkrack.cli.loading import loading
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import exclude_option, json_option, limit_option, nodes, quiet_option, rack_option

if TYPE_CHECKING:
    from core.claims.claims import Claim
    from core.model import Port, Rack
    from sparkrack.accept.bundle import Recording
    from sparkrack.accept.imported import ImportReport
    from sparkrack.accept.load.part import HeldLock
    from sparkrack.accept.model import AcceptReport, RunLevel
    from sparkrack.accept.run import LoadMeans
    from sparkrack.accept.state import AcceptState
    from sparkrack.cli.progress import ProgressDisplay

PAGE, DOCUMENT = "accept.html", "accept.json"


def _ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from core.claims.claims import known_claims

    return [claim.id for claim in known_claims() if claim.id.startswith(incomplete)]


@click.command()
@rack_option
@limit_option
@exclude_option
@click.option(
    "--level",
    type=click.Choice(["look", "change", "load"]),
    default="look",
    show_default=True,
    help="What an observation may do to the rack: `look` only reads, `change` also changes the cage of --spare, "
    "`load` also loads the fabric and the GPUs, and does what --reboot and --pull name.",
)
@click.option(
    "--spare",
    metavar="SWITCH/CAGE",
    help="A cage that rack.yaml does not declare and no host needs, for --level change and load.",
)
@click.option(
    "--burn",
    type=click.IntRange(0, 3600),
    metavar="SECONDS",
    help="How long the GPU of each node is loaded, one after the other, for --level load (20); 0 leaves it out.",
)
@click.option("--reboot", metavar="NODE", shell_complete=nodes, help="Restart this node, for --level load.")
@click.option(
    "--pull",
    metavar="NODE/PORT",
    help="Ask on this terminal to pull the cable of this port and to plug it in again, for --level load.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before the rack is changed or loaded.")
@click.option(
    "--claim",
    "ids",
    multiple=True,
    metavar="ID",
    shell_complete=_ids,
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
@click.option(
    "--sign",
    "key",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="KEY",
    help="Sign the bundle with this private key of OpenSSH, which tells its readers the public key.",
)
@click.option(
    "--import",
    "imported",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="BUNDLE",
    help="Test this program against the rack of a bundle; connects to no rack.",
)
@json_option
@quiet_option
def accept(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    level: RunLevel,
    spare: str | None,
    burn: int | None,
    reboot: str | None,
    pull: str | None,
    yes: bool,
    ids: tuple[str, ...],
    output: Path | None,
    bundle: Path | None,
    key: Path | None,
    imported: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read from a real rack which claims about the hardware hold: each is observed, refuted or not observed.

    \b
      sparkrack accept --output accept
      sparkrack accept --output accept --level change --spare crs812/qsfp56-1
      sparkrack accept --output accept --level load --reboot spark2 --pull spark3/1
      sparkrack accept --claim switch.monitor.fields --claim preflight.dmi
      sparkrack accept --json | jq '.claims[] | select(.result == "refuted")'
      sparkrack accept --bundle rack.tar.gz
      sparkrack accept --import rack.tar.gz

    The claims are those of docs/unproven.md. A claim is not observed when a host does not answer, when its answer is
    not understood, or when it needs a change or load. `look` changes nothing and takes no lock. `change` holds the lock
    of the rack, changes link settings of one spare cage in transactions that are rolled back, and proves that the
    switch is as it was. `load` measures the bandwidth between the nodes, watches both ends of the cable of --pull,
    restarts the node of --reboot, and loads the GPU of one node after the other for the seconds of --burn; what it is
    not asked for is not observed. It refuses while a unit runs on a node that it needs. A run that was ended goes on
    when it is started again with the same --output.
    Exit 0 when no claim is refuted, 2 when one is, 1 when no host could be read, or when the switch, a node or a cable
    is not proven to be as it was. With --import: 0 when no test failed, 2 when one did, 1 when none could be run.
    """
    if imported:
        if limit or exclude or ids or output or bundle or key or spare or burn or reboot or pull or level != "look":
            raise click.UsageError("--import tests this program against a bundle; only --json and --quiet go with it")
        _import(imported, as_json=as_json, quiet=quiet)
    if key and not bundle:
        raise click.UsageError("--sign signs a bundle; name it with --bundle FILE")
    with loading():
        from rich.console import Console

        from core.model import load
        from core.model.selection import SelectionError, select
        from core.util.provenance import origin
        from sparkrack.accept import render
        from sparkrack.accept.bundle import BundleError, Recording, check_key
        from sparkrack.accept.load.burn import BURN_SECONDS
        from sparkrack.accept.load.part import LoadError
        from sparkrack.accept.run import AcceptOptions, Forgetful, run_accept
        from sparkrack.accept.trials import SpareError, spare_of
        from sparkrack.cli.progress import show_progress
        from sparkrack.status.render import WIDTH

    claims = _selected(ids)
    found = load(rack)
    try:
        machines = select(found, limit, exclude).machines
    except SelectionError as fault:
        raise click.ClickException(str(fault)) from None
    if (level == "change" and spare is None) or (level == "look" and spare is not None):
        raise click.UsageError("--level change and --spare SWITCH/CAGE go together: settings of that cage are changed")
    if (burn is not None or reboot or pull) and level != "load":
        raise click.UsageError("--burn, --reboot and --pull load the rack; they go with --level load")
    try:
        cage = spare_of(found, spare) if spare else None
    except SpareError as fault:
        raise click.UsageError(f"--spare {fault}") from None
    if cage and cage.switch.name not in machines:
        raise click.UsageError(f"--spare {spare}: {cage.switch.name} is not among the selected hosts")
    port = _checked_load(found, machines, reboot, pull) if level == "load" else None
    seconds = BURN_SECONDS if burn is None else burn
    if level == "load" and not yes:
        _ask(_question(spare, seconds, reboot, pull))
    elif cage and not yes:
        _ask(f"Change link settings of {spare}, and roll them back?")
    if output:
        _make_folder(output)  # now: minutes later the readings would be for nothing
    if bundle and bundle.exists():
        raise click.ClickException(f"{bundle}: exists already; name a new file")
    if key:
        try:
            check_key(key)  # now, and not after the readings
        except BundleError as fault:
            raise click.ClickException(str(fault)) from None
    recording = Recording() if bundle else None
    begun = origin(rack)
    subject = " ".join(filter(None, (spare, reboot, pull, f"burn {seconds}" if level == "load" else "")))
    state = _state(output, found, list(machines), subject) if output else None
    if state and state.found:
        click.echo(f"{len(state.found)} claims were settled by an earlier run that did not end", err=True)
    ended = False
    try:
        with show_progress(silent=as_json or quiet) as progress:
            report = run_accept(
                found,
                list(machines),
                claims,
                begun,
                AcceptOptions(
                    level,
                    cage,
                    load=_means(found, reboot or "", port, seconds, progress) if level == "load" else None,
                ),
                state or Forgetful(),
                lock=lambda: _lock(found, spare or ""),
                recording=recording,
                progress=progress,
            )
        if output:
            _write(output, report)
        ended = True
    except (SpareError, LoadError) as fault:
        raise click.ClickException(str(fault)) from None
    except OSError as fault:
        raise click.ClickException(f"{output}: {fault.strerror or fault}") from None
    finally:
        if state:
            state.close(ended=ended)
    if bundle and recording:
        _write_bundle(bundle, found, report, recording, key)
    if as_json:
        click.echo(report.to_json())
    else:
        width = None if sys.stdout.isatty() else WIDTH
        render.show(report, Console(highlight=False, markup=False, width=width), quiet=quiet)
        for path in (output and output / PAGE, bundle):
            if path:
                click.echo(str(path))
    _next(report, rack, limit, exclude, ids, output, silent=as_json or quiet)
    sys.exit(report.exit)


def _selected(ids: tuple[str, ...]) -> tuple[Claim, ...]:
    """The claims with these ids, or all. Raises UsageError."""
    from core.claims.claims import known_claims

    known = {claim.id: claim for claim in known_claims()}
    for one in ids:
        if one not in known:
            near = get_close_matches(one, known, 1)
            hint = f"did you mean {near[0]}?" if near else "docs/unproven.md has the ids"
            raise click.UsageError(f"--claim {one}: there is no such claim; {hint}")
    return tuple(known[one] for one in dict.fromkeys(ids)) or tuple(known.values())


def _ask(question: str) -> None:
    """Ask before a change. Raises ClickException without a terminal."""
    if not sys.stdin.isatty():
        raise click.ClickException("there is no terminal to ask on; -y goes on without a question")
    click.confirm(question, abort=True, err=True)


def _question(spare: str | None, burn: int, reboot: str | None, pull: str | None) -> str:
    parts = [f"change link settings of {spare} and roll them back"] if spare else []
    parts.append("load the fabric")
    parts += [f"ask for the cable of {pull} to be pulled"] if pull else []
    parts += [f"restart {reboot}"] if reboot else []
    parts += [f"load the GPU of each node for {burn} s"] if burn else []
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}?"


def _checked_load(rack: Rack, machines: Iterable[str], reboot: str | None, pull: str | None) -> Port | None:
    """The port whose cable is to be pulled. Raises UsageError, or ClickException without a terminal."""
    from sparkrack.accept.load.cable import port_of
    from sparkrack.accept.load.part import LoadError

    if reboot and (reboot not in rack.nodes or reboot not in machines):
        raise click.UsageError(f"--reboot {reboot}: not among the selected nodes")
    if not pull:
        return None
    try:
        port = port_of(rack, pull)
    except LoadError as fault:
        raise click.UsageError(f"--pull {fault}") from None
    leg = rack.cabling.leg_of(port)
    if away := [name for name in (port.node, leg.switch if leg else "") if name not in machines]:
        raise click.UsageError(f"--pull {pull}: {away[0]} is not among the selected hosts")
    if not sys.stdin.isatty():
        raise click.ClickException(
            "--pull asks for a hand at the rack, and there is no terminal to ask on; run it in one, or leave --pull out"
        )
    return port


class TerminalHand:
    """The operator at this terminal."""

    def __init__(self, screen: ProgressDisplay) -> None:
        self._screen = screen

    def ask(self, text: str) -> None:
        """Print what is to be done; an ENTER from before does not confirm it."""
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._screen.warn(text)

    def done(self) -> bool:
        """Whether ENTER was pressed. Raises Abort when the terminal is closed."""
        if not select.select([sys.stdin], [], [], 0)[0]:
            return False
        if not os.read(sys.stdin.fileno(), 1024):
            raise click.Abort
        return True


def _means(rack: Rack, reboot: str, port: Port | None, burn: int, screen: ProgressDisplay) -> LoadMeans:
    """What the level `load` needs."""
    from sparkrack.accept.load.run import LoadOptions
    from sparkrack.accept.run import LoadMeans
    from sparkrack.cli.verify import CHECKED_ROLES, files
    from sparkrack.engine.recorded_run import recorded_run
    from sparkrack.engine.ssh_locking import hold_lock

    @contextmanager
    def lock() -> Iterator[HeldLock]:
        with recorded_run(rack, "accept: Load the rack") as run:
            own = run.begin("accept at level load")
            with hold_lock(rack, own, screen.warn) as held:
                yield held

    checks = tuple(files(filter(rack.keeps, CHECKED_ROLES)))
    return LoadMeans(LoadOptions(reboot, port, checks, burn), lock, TerminalHand(screen), screen.warn)


def _lock(rack: Rack, spare: str) -> AbstractContextManager[Callable[[], str]]:
    """Hold the lock of the rack if its head node answers: safe mode of the switch keeps other runs out in any case."""
    from sparkrack.engine.ssh_locking import lock_if_reachable

    def alone(why: str) -> None:
        click.echo(f"{why}; going on without the lock", err=True)

    return lock_if_reachable(rack, f"accept on {spare}", alone)


def _state(folder: Path, rack: Rack, machines: list[str], spare: str) -> AcceptState:
    from sparkrack.accept.state import AcceptState

    try:
        return AcceptState.open(folder, rack, machines, spare)
    except OSError as fault:
        raise click.ClickException(f"{folder}: {fault.strerror}") from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.ClickException(f"{folder}: {fault.strerror}; choose another folder") from None


def _write(folder: Path, report: AcceptReport) -> None:
    """Write the page and the document, readable by their owner only."""
    from core.util.atomic_file import write_atomic
    from sparkrack.accept.report_html import page

    try:
        write_atomic(folder / PAGE, page(report))
        write_atomic(folder / DOCUMENT, report.to_json() + "\n")
    except OSError as fault:
        raise click.ClickException(f"{folder}: {fault.strerror}") from None


def _write_bundle(path: Path, rack: Rack, report: AcceptReport, recording: Recording, key: Path | None) -> None:
    from datetime import UTC, datetime

    from sparkrack.accept.bundle import BundleError, bundle_files, write_bundle
    from sparkrack.engine.run_log import versions

    try:
        made = datetime.now(UTC).replace(microsecond=0)
        write_bundle(path, bundle_files(rack, report, recording), made, versions(), key)
    except BundleError as fault:
        raise click.ClickException(f"{path}: {fault}") from None
    except OSError as fault:
        raise click.ClickException(f"{path}: {fault.strerror}") from None


def _import(path: Path, *, as_json: bool, quiet: bool) -> NoReturn:
    """Test this program against a bundle, print the tests, and exit."""
    with loading():
        from core.model.errors import printable_line
        from core.util.provenance import origin
        from sparkrack.accept.bundle import BundleError, read_bundle
        from sparkrack.accept.imported import run_import

    try:
        report = run_import(read_bundle(path), origin(path))
    except BundleError as fault:
        # Names of files and keys are those that the maker of the bundle chose.
        raise click.ClickException(f"{path}: {printable_line(str(fault))}") from None
    except OSError as fault:
        raise click.ClickException(f"{path}: {fault.strerror}") from None
    if as_json:
        click.echo(report.model_dump_json(by_alias=True, indent=2))
    else:
        _show_import(report, quiet=quiet)
    sys.exit(report.exit)


def _show_import(report: ImportReport, *, quiet: bool) -> None:
    for test in report.tests:
        if test.outcome == "failed":
            click.echo(f"failed: {test.claim}: {test.host}: {test.test}: {test.text}")
    if not quiet:
        signed = f"signed by {report.signer}" if report.signer else "not signed"
        click.echo(f"bundle of {report.made}, {signed}")
    counts = report.counts
    click.echo(", ".join(f"{counts[outcome]} {outcome}" for outcome in ("failed", "passed", "not tested")))


def _next(
    report: AcceptReport,
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    ids: tuple[str, ...],
    output: Path | None,
    *,
    silent: bool,
) -> None:
    """Print the next step: find out why no host answers, leave out the hosts that do not, write the evidence, or check
    that the rack works.
    """
    again = ["sparkrack", "accept", *(word for one in ids for word in ("--claim", one))]
    away = [host.host for host in report.hosts if not host.answered]
    if report.exit == 1:
        next_step(["sparkrack", "status"], "to see which hosts answer", rack=rack, silent=silent)
    elif away:
        again += ["--output", str(output)] if output else []
        reason, exclude = "without the hosts that do not answer", (*exclude, *away)
        next_step(again, reason, rack=rack, limit=limit, exclude=exclude, silent=silent)
    elif output is None:
        again += ["--output", "accept"]
        next_step(again, "for a page with the evidence", rack=rack, limit=limit, exclude=exclude, silent=silent)
    elif report.exit == 2:
        next_step(["sparkrack", "support"], "for a report of what is refuted", rack=rack, silent=silent)
    else:
        next_step(["sparkrack", "verify"], rack=rack, silent=silent)
