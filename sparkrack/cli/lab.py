"""`sparkrack lab`: the virtual rack. Its commands need root, and ask sudo for it when they are not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from lab import snapshots
from lab.paths import LabPaths
from lab.privileges import open_lab, run_in_lab
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import starting
from sparkrack.terminal.progress import ProgressDisplay, show_progress

_RUN = ("sparkrack", "lab", "run", "--", "sparkrack")
AS_TYPED = {"allow_interspersed_args": False}
"""Options that follow the first word belong to the command that is run."""


@click.group()
def lab() -> None:
    """A virtual rack on this machine: real kernels as nodes, an emulated switch that wires them.

    It lives in one network namespace; nothing of it appears in the machine's own network. Its files are in .lab,
    or in the folder that SPARKRACK_LAB names.
    """


_screens: list[ProgressDisplay] = []
"""The progress on the terminal, which is removed while a line is printed; threads of the lab print, too."""


def _print_line(line: str) -> None:
    with _screens[-1].hidden() if _screens else nullcontext():
        click.echo(f"lab: {line}", err=True)


@contextmanager
def _show_activity(title: str) -> Iterator[None]:
    """Show what is being done, with its seconds, on a terminal. A log has only the lines of the lab."""
    with show_progress(silent=not sys.stderr.isatty()) as screen:
        screen.phase(title)
        _screens.append(screen)
        try:
            yield
        finally:
            _screens.remove(screen)


@lab.command()
@click.option("--nodes", type=click.IntRange(1), default=3, show_default=True, help="How many, on one switch.")
@click.option(
    "--rack",
    type=click.Path(path_type=Path, readable=False, dir_okay=False),
    help="Build the rack of this file instead.",
)
@click.option("--factory", is_flag=True, help="New machines are in factory state; `sparkrack bootstrap` is next.")
def up(nodes: int, rack: Path | None, factory: bool) -> None:
    """Build the rack, or what of it is missing. Safe to run again.

    With --factory the nodes have one user, nvidia, with the password in `password` of the lab's folder, and the switch
    is at 192.168.88.1 with its sticker's; `host-keys` has the fingerprints that the consoles showed.
    """
    here = open_lab(_print_line)
    with _show_activity("build the rack"):
        here.up(nodes, rack, factory=factory)
    click.echo(f"lab: up; its rack is {here.paths.rack}")
    next_step([*_RUN, "bootstrap" if factory else "plan"])


@lab.command()
def down() -> None:
    """End it and remove everything but the cached image, also after a crash."""
    here = open_lab(_print_line)
    here.down()
    click.echo("lab: down; nothing is left of it")
    next_step(["sparkrack", "lab", "up"], "to build it again")


@lab.command()
def status() -> None:
    """Every machine: does it run, does it answer. Exit 1 when one does not."""
    here = open_lab(_print_line)
    members = here.status()
    table = Table("machine", "kind", "address", "process", "answers")
    for member in members:
        process, answers = "running" if member.running else "not running", "yes" if member.answers else "no"
        table.add_row(member.name, member.kind, member.address, process, answers)
    Console().print(table)
    click.echo(f"kernel of the nodes: {here.kernel}")
    healthy = all(member.answers for member in members)
    next_step([*_RUN, "status"] if healthy else ["sparkrack", "lab", "up"])
    sys.exit(0 if healthy else 1)


def _complete_machines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes and switches of this folder's lab that a shell may complete to."""
    nodes, switches = _names_starting_with(incomplete)
    return [*nodes, *switches]


def _complete_nodes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _names_starting_with(incomplete)[0]


def _names_starting_with(incomplete: str) -> tuple[list[str], list[str]]:
    return starting(LabPaths.here().rack, incomplete)


@lab.command()
@click.argument("name", shell_complete=_complete_machines)
@click.option(
    "--factory", is_flag=True, help="Factory state of a real machine; the default for one from `lab up --factory`."
)
@click.option("--serial", metavar="NUMBER", help="Another unit with this number replaces the switch; needs --factory.")
def reset(name: str, factory: bool, serial: str | None) -> None:
    """Bring one machine to factory state: a fresh disk for a node, factory settings for the switch."""
    here = open_lab(_print_line)
    if serial and (not factory or name not in here.layout.rack.switches):
        raise click.UsageError("--serial goes with --factory and the name of a switch")
    with _show_activity(f"reset {name}"):
        here.reset(name, factory=factory, serial=serial)
    click.echo(f"lab: {name} is factory-fresh")
    next_step([*_RUN, "bootstrap" if factory else "plan"])


@lab.command()
@click.argument("name", shell_complete=_complete_nodes)
def reboot(name: str) -> None:
    """Restart a node as its owner would, and wait until it takes logins again."""
    here = open_lab(_print_line)
    with _show_activity(f"restart {name}"):
        here.reboot(name)
    click.echo(f"lab: {name} is back")
    next_step([*_RUN, "status"])


def _complete_snapshots(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in snapshots.names() if name.startswith(incomplete)]


@lab.command()
@click.argument("name", shell_complete=_complete_snapshots)
@click.option("--delete", is_flag=True, help="Remove the snapshot of this name instead.")
def snapshot(name: str, delete: bool) -> None:
    """Keep the rack as it is now: disks, switch, images, seeds. The nodes are shut down for it and started again.

    It lies in the cache beside the image, so that a lab of any folder can be restored from it.
    """
    here = open_lab(_print_line)
    if delete:
        snapshots.LabSnapshot(name).delete()
        click.echo(f"lab: snapshot {name} is removed")
        next_step(["sparkrack", "lab", "status"])
        return
    with _show_activity(f"keep {name}"):
        here.snapshot(name)
    click.echo(f"lab: kept as {name}")
    next_step(["sparkrack", "lab", "restore", name], "to bring it back")


@lab.command()
@click.argument("name", shell_complete=_complete_snapshots)
def restore(name: str) -> None:
    """Replace the rack of this folder by a snapshot and start it."""
    here = open_lab(_print_line)
    with _show_activity(f"restore {name}"):
        here.restore(name)
    click.echo(f"lab: up as in {name}; its rack is {here.paths.rack}")
    next_step([*_RUN, "plan"])


@lab.command(context_settings=AS_TYPED)
@click.argument("name", shell_complete=_complete_nodes)
@click.argument("command", nargs=-1)
def ssh(name: str, command: tuple[str, ...]) -> None:
    """Log in to a node, or run one command there."""
    here = open_lab(_print_line)
    run_in_lab(here, [*here.ssh(name), *command])


@lab.command(context_settings=AS_TYPED)
@click.argument("command", nargs=-1, required=True)
def run(command: tuple[str, ...]) -> None:
    """Run a command inside the lab's network, as you: sparkrack lab run -- pyinfra inventory.py deploy.py

    RACK names the lab's rack unless it is set; what is kept of runs (backups) goes to the lab's folder.
    """
    run_in_lab(open_lab(_print_line), list(command))
