"""`sparkrack upgrade`: another driver for one node, another RouterOS for the switch."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import Rack, load
from roles.driver.options import DriverOptions
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import nodes, rack_option
from sparkrack.cli.upgrade_switch import switch
from sparkrack.maintenance.driver_release import release_driver
from sparkrack.terminal.progress import show_progress


@click.group()
def upgrade() -> None:
    """Upgrade the driver of a node, or the switch: what `sparkrack apply` never does by itself."""


upgrade.add_command(switch)


@upgrade.command("driver")
@click.argument("node", shell_complete=nodes)
@rack_option
@click.option("--version", help="The version, as driver.version has it.  [default: the newest of its major]")
@click.option("--kernel", help="A kernel to install with it, as driver.kernel has it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def upgrade_driver(node: str, rack: Path, version: str | None, kernel: str | None, yes: bool) -> None:
    """Give one node another driver, to try it before the others get it.

    Takes what the rack holds off hold, installs, holds it again, also when the middle fails. Nothing is rebooted. A
    deploy brings the node back to driver.version of the rack, unless that is changed or absent.
    """
    found = load(rack)
    with show_progress(silent=False) as screen:
        changed = release_driver(found, node, version, kernel, screen, yes=yes)
    if changed:
        _print_next_step(node, found, rack, *changed)
    else:
        next_step(["sparkrack", "verify"], rack=rack, limit=[node])


def _print_next_step(node: str, rack: Rack, file: Path, version: str, kernel: str | None) -> None:
    lines = f'version: "{version}"' + (f" and kernel: {kernel}" if kernel else "")
    click.echo(f"After the restart, sparkrack verify --limit {node} fails only where the rack declares otherwise.")
    click.echo(f"If it is good, write {lines} under driver in {rack.source} and deploy: the others follow, one by one.")
    driver = rack.declared(DriverOptions)
    if driver and driver.version:
        click.echo(f"If it is not, deploy as the rack is: {node} gets its old version back.")
    else:
        click.echo(
            f"If it is not: {rack.source} declares no version, so a deploy leaves it. "
            f"sparkrack upgrade driver {node} --version OLD puts back the one that is named above."
        )
    next_step(["sparkrack", "reboot"], rack=file, limit=[node])
