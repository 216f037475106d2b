"""`sparkrack seed`: files for a node's first boot, so that no password is typed."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import click

from core.model import Rack, load
from core.model.selection import SelectionError, select_nodes
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import an_address, node_patterns, rack_option
from sparkrack.cloud_init.seed_options import OptionError, check_disk, given_management
from sparkrack.cloud_init.write_seeds import FORMATS, write_seeds


def _parse_addresses(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[IPv4Address, ...]:
    return tuple(IPv4Address(an_address(context, parameter, text) or "") for text in value)


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=node_patterns)
@click.option("--all", "whole", is_flag=True, help="Every node.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Gets a folder a node.")
@rack_option
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="Who reads it."
)
@click.option("--interface", metavar="NAME", help="Give the management interface the address of rack.yaml.")
@click.option("--prefix", type=click.IntRange(8, 30), help="The length of that network.")
@click.option("--gateway", callback=an_address, metavar="ADDRESS", help="Its gateway.")
@click.option(
    "--dns", multiple=True, callback=_parse_addresses, metavar="ADDRESS", help="Its DNS server; may be given again."
)
@click.option("--erase-disk", metavar="DEVICE", help="autoinstall: this disk may be erased; else the installer asks.")
def seed(
    names: tuple[str, ...],
    whole: bool,
    out: Path,
    rack: Path,
    form: str,
    interface: str | None,
    prefix: int | None,
    gateway: str | None,
    dns: tuple[IPv4Address, ...],
    erase_disk: str | None,
) -> None:
    """Write what nodes read at their first boot: name, login user, the operator's public key.

    \b
      sparkrack seed spark2 --out seeds
      sparkrack seed --all --out seeds --interface enP7s7 --prefix 24 --gateway 10.77.0.1

    FOLDER/NODE gets user-data, meta-data and network-config for cloud-init (a volume called CIDATA), or user-data and
    meta-data for Ubuntu's installer. No password and no private key is in them, and host keys are made on the node.
    Without --interface the network stays as the image has it. Files of others are never written over.
    """
    found = load(rack)
    chosen = _chosen_nodes(found, names, whole)
    try:
        management = given_management(interface, prefix, gateway, dns)
        check_disk(erase_disk, form)
    except OptionError as fault:
        raise click.UsageError(str(fault)) from None
    texts = write_seeds(found, chosen, out, form, management, erase_disk)
    for name in chosen:
        click.echo(f"{name}: {out / name}: {', '.join(texts[name])}")
    next_step(["sparkrack", "bootstrap", "nodes", *chosen], "after the first boot with these files", rack=rack)


def _chosen_nodes(rack: Rack, names: tuple[str, ...], whole: bool) -> tuple[str, ...]:
    if bool(names) == whole:
        raise click.UsageError("name the nodes, or pass --all")
    try:
        return select_nodes(rack, names, "")
    except SelectionError as fault:
        raise click.UsageError(str(fault)) from None
