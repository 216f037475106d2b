"""`sparkrack upgrade switch`: RouterOS and firmware of a switch, from package files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import SecretRef, load
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import (
    an_address,
    no_lock_option,
    no_nodes_option,
    password_options,
    rack_option,
    switch_argument,
    switches,
)
from sparkrack.maintenance.switch_upgrade import UpgradeOptions, upgrade_switch
from sparkrack.terminal.progress import ProgressDisplay
from switch.bootstrap.menus import FACTORY_ADDRESS, FACTORY_USER

DIFFERS = 2
"""Exit code of --dry when there is something to upgrade, and of an upgrade after which the configuration differs."""


@click.command("switch")
@click.argument("name", required=False, shell_complete=switches)
@rack_option
@click.option(
    "--packages",
    required=True,
    type=click.Path(path_type=Path, readable=False),
    metavar="FOLDER",
    help="Folder with the .npk files: routeros, and each other package that the switch has.",
)
@click.option(
    "--sha256",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Checksums of the files, as sha256sum writes them.  [default: SHA256SUMS in FOLDER, if it exists]",
)
@click.option(
    "--address",
    callback=an_address,
    default=FACTORY_ADDRESS,
    show_default=True,
    help="Where a switch that was not bootstrapped yet answers.",
)
@click.option("--api-port", type=click.IntRange(1, 65535), default=8728, show_default=True, help="Its plain API.")
@password_options("", f"{FACTORY_USER}'s")
@click.option(
    "--replace-fingerprint", is_flag=True, help="The switch was reset: it need not show the certificate in rack.yaml."
)
@click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    default=0,
    help="TCP port of this machine from which the switch downloads.  [default: any]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=600,
    show_default=True,
    help="Seconds the switch may take to come back after a restart.",
)
@click.option("--dry", is_flag=True, help="Only show the steps. Exit 2 when there are any.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@no_nodes_option("Do not ask the nodes whether units run there.")
@no_lock_option
def switch(
    name: str | None,
    rack: Path,
    packages: Path,
    sha256: Path | None,
    address: str,
    api_port: int,
    password: SecretRef | None,
    replace_fingerprint: bool,
    listen: int,
    timeout: float,
    dry: bool,
    yes: bool,
    no_nodes: bool,
    no_lock: bool,
) -> None:
    """Upgrade RouterOS and the firmware of a switch, from package files that you downloaded.

    \b
      sparkrack upgrade switch --packages ~/routeros-7.24.6

    For a switch as it comes from its box, or one in service. It checks files and switch, keeps a backup, lets the
    switch download the files from this machine, restarts it, writes the firmware, restarts it again, and compares the
    configuration with the one before. All links of the switch are down during each restart. Run it again after any
    interruption. A downgrade is refused, and so is an upgrade while a unit of several nodes runs on a node with a link
    to the switch, and one to a release that can be attacked or on which a change may not be undone
    (docs/reference/advisories.md).
    Exit 0 when the switch runs this version, 2 when its configuration is not as before, else 1.
    """
    found = load(rack)
    chosen = switch_argument(found, name)

    options = UpgradeOptions(
        packages=packages,
        sha256=sha256,
        address=address,
        api_port=api_port,
        password=password,
        replace=replace_fingerprint,
        listen=listen,
        timeout=timeout,
        dry=dry,
        yes=yes,
        no_nodes=no_nodes,
        no_lock=no_lock,
    )
    done = upgrade_switch(found, chosen, options, ProgressDisplay(silent=True))
    if not dry:
        following = ("bootstrap", "switch", chosen.name) if done.factory else ("plan",)
        next_step(["sparkrack", *following], rack=rack)
    sys.exit(0 if done.same else DIFFERS)
