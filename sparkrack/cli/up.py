"""`sparkrack up`: from a rack.yaml to a verified rack, and to a served model, with one question after one plan."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from core.model import Rack, load
from core.util.command_error import CommandError
from serving.options import served_units
from sparkrack.cli.next_step import next_step, print_next
from sparkrack.cli.options import json_option, rack_option
from sparkrack.cli.rebuild_options import absent_option, forwarded_options, print_report
from sparkrack.engine.subcommands import CommandRunner
from sparkrack.maintenance.up_run import RecipeOptions, UpRun, take_recipe, up_command
from sparkrack.rebuild.model import RequestError, requested
from sparkrack.rebuild.phase_commands import ForwardedOptions, units_to_start
from sparkrack.serving.unit_request import unit_request
from sparkrack.terminal.progress import show_progress
from sparkrack.terminal.prompts import has_terminal, require_consent, require_terminal


@click.command()
@click.option(
    "--serve", metavar="UNIT|RECIPE", help="Start this unit of rack.yaml, or add that of a recipe to it first."
)
@click.option(
    "--registry", "registries", multiple=True, metavar="[NAME=]FOLDER|URL", help="As `serve import --registry`."
)
@click.option("--context", type=click.IntRange(1), help="Tokens of the longest sequence.  [default: of the recipe]")
@click.option("--sequences", type=click.IntRange(1), help="Sequences at once.  [default: of the recipe]")
@click.option("--memory", type=float, metavar="SHARE", help="Share of a node, like 0.85.  [default: of the recipe]")
@rack_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask after the plan.")
@click.option("--dry", is_flag=True, help="Only show what would be done.")
@absent_option
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier one was interrupted or finished.")
@forwarded_options(returned=False)
@json_option
def up(
    serve: str | None,
    registries: tuple[str, ...],
    context: int | None,
    sequences: int | None,
    memory: float | None,
    rack: Path,
    yes: bool,
    dry: bool,
    exclude: tuple[str, ...],
    fresh: bool,
    as_json: bool,
    forwarded: ForwardedOptions,
) -> None:
    """Bring a whole rack up: wait, bootstrap, plan and apply, reboot, start, verify.

    \b
      sparkrack up
      sparkrack up --serve qwen
      sparkrack up --serve recipes/glm-5.3-flash.yaml
      sparkrack up --dry

    Where rack.yaml is absent, `init` asks for it first. Fingerprints and passwords are asked by bootstrap; then one
    plan is shown, and one question asked; after it nothing is asked. The same command resumes after any interruption.
    What runs goes on: a change that would end a unit or a container is refused, and only a node that asks for a restart
    has its units stopped for it. The end has the address of the served model, and a line that asks it.

    Exit 0 when everything is done and verified, or nothing is to do. With --dry 2 when something is to do. Else 1.
    """
    if not (yes or dry):
        require_terminal("pass -y, or --dry")
    if not rack.exists() and has_terminal() and not dry:
        _ask_for_rack_file(rack)
    found = load(rack)
    options = RecipeOptions(registries, context, sequences, memory)
    if (words := options.words()) and (not serve or serve in served_units(found)):
        raise click.UsageError(f"{words[0]}: is for a recipe; change the unit in {rack}")
    with show_progress(silent=as_json) as screen:
        say = partial(screen.say, err=as_json)
        if serve and serve not in served_units(found):
            with screen.hidden():
                serve = take_recipe(rack, serve, options, say, dry=dry)
            found = load(rack)
        try:
            request = requested(found, rack, (), None, True, exclude)
        except RequestError as fault:
            raise click.UsageError(str(fault)) from None
        # A unit that a dry run does not add is not in the file.
        named = (serve,) if serve in served_units(found) else ()
        units = tuple(dict.fromkeys((*units_to_start(found, request), *named)))
        request = request.model_copy(update={"units": units})
        again = up_command(rack, request.apart, serve, forwarded, yes=yes)
        ask = None if yes else partial(require_consent, err=as_json)
        run = UpRun(found, request, forwarded, again, ask, screen, forwarded.wait, as_json)
        if dry:
            code = run.show()
            report, verified = None, ""
        else:
            code, report = 0, None
            verified = run.finished(fresh=fresh)
            if not verified:
                report = run.run(fresh=fresh)
                code = report.code
    if dry:
        next_step(["sparkrack", "up"], rack=rack, silent=as_json)
        sys.exit(code)
    if report:
        print_report(report, as_json=as_json)
        if report.again:
            print_next(report.again, "to resume", silent=as_json)
            sys.exit(code)
    else:
        click.echo(f"nothing to do: in sync, and verified at {verified}", err=as_json)
    _show_requests(load(rack), units, as_json=as_json)
    shown = ["serve", "status", *((units[0],) if len(units) == 1 else ())] if units else ["status"]
    next_step(["sparkrack", *shown], rack=rack, silent=as_json)


def _ask_for_rack_file(file: Path) -> None:
    """Have `init` ask for the rack file. Raises CommandError unless the file is ready."""
    click.echo(f"{file}: is not there; sparkrack init asks for what it needs", err=True)
    done = CommandRunner(None, as_json=False).call(("init", "--out", str(file)))
    if done.exit:
        raise CommandError(f"{file} is not ready; see above")


def _show_requests(rack: Rack, units: tuple[str, ...], *, as_json: bool) -> None:
    for name in units:
        asked = unit_request(rack, served_units(rack)[name])
        click.echo(f"unit {name}: {asked.address}, model {asked.model}", err=as_json)
        click.echo(f"  {asked.line}", err=as_json)
