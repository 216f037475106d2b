"""`sparkrack seed`: what a node reads at its first boot, so that nobody types a password."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

import click

from sparkrack.cli.machines import nodes
from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import Rack, load, regular
from sparkrack.fleet.cabling import Port
from sparkrack.run.files import keep
from sparkrack.seed.cloud import MARK, autoinstall
from sparkrack.seed.cloud import seed as cloud_seed
from sparkrack.seed.key import OperatorKeyError, public
from sparkrack.seed.network import Management, NetworkError

_INTERFACE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_DISK = re.compile(r"/dev/[A-Za-z0-9/_.:-]{1,200}")
_FABRIC = frozenset(half.interface for number in (0, 1) for half in Port("", number).halves)
_LONGEST = 1024
"""So much of a file that is there is read; its mark stands in the first 400 characters."""
FORMATS = ("cloud-init", "autoinstall")


def _address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> IPv4Address | None:
    try:
        return None if value is None else IPv4Address(value)
    except AddressValueError:
        raise click.BadParameter(f"{value} is not an IPv4 address") from None


def _addresses(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[IPv4Address, ...]:
    return tuple(found for text in value if (found := _address(context, parameter, text)) is not None)


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=nodes)
@click.option("--all", "whole", is_flag=True, help="Every node.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Gets a folder a node.")
@rack_option
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="Who reads it."
)
@click.option("--interface", metavar="NAME", help="Give the management interface the address of rack.yaml.")
@click.option("--prefix", type=click.IntRange(8, 30), help="The length of that network.")
@click.option("--gateway", callback=_address, metavar="ADDRESS", help="Its gateway.")
@click.option(
    "--dns", multiple=True, callback=_addresses, metavar="ADDRESS", help="Its DNS server; may be given again."
)
@click.option("--erase-disk", metavar="DEVICE", help="autoinstall: this disk may be erased; else a person is asked.")
def seed(
    names: tuple[str, ...],
    whole: bool,
    out: Path,
    rack: Path,
    form: str,
    interface: str | None,
    prefix: int | None,
    gateway: IPv4Address | None,
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
    if found.access.user == "root":
        raise click.ClickException("access.user: a seed keeps root from logging in; write another user, like ops")
    chosen = _chosen(found, names, whole)
    management = _management(interface, prefix, gateway, dns)
    if erase_disk is not None and (form != "autoinstall" or not _DISK.fullmatch(erase_disk)):
        raise click.UsageError("--erase-disk names a device like /dev/nvme0n1, and is for --format autoinstall")
    try:
        key = public(found.access.key)
        texts = {
            name: autoinstall(found, found.nodes[name], key, management, erase_disk)
            if form == "autoinstall"
            else cloud_seed(found, found.nodes[name], key, management)
            for name in chosen
        }
    except (OperatorKeyError, NetworkError) as fault:
        raise click.ClickException(f"{fault}; nothing was written") from None
    files = {out / name / file: text for name, of in texts.items() for file, text in of.items()}
    for path in files:
        _ours(path)
    try:
        for path, text in files.items():
            keep(path, text, 0o644)
    except OSError as fault:
        raise click.ClickException(f"{fault.filename or out}: {fault.strerror}") from None
    for name in chosen:
        click.echo(f"{name}: {out / name}: {', '.join(texts[name])}")


def _chosen(rack: Rack, names: tuple[str, ...], whole: bool) -> tuple[str, ...]:
    if bool(names) == whole:
        raise click.UsageError("say which nodes, or --all")
    for name in names:
        if name not in rack.nodes:
            raise click.UsageError(f"{name}: not a node of the rack; there are {', '.join(rack.nodes)}")
    return tuple(name for name in rack.nodes if whole or name in names)


def _management(
    interface: str | None, prefix: int | None, gateway: IPv4Address | None, dns: tuple[IPv4Address, ...]
) -> Management | None:
    if interface is None:
        if prefix is not None or gateway is not None or dns:
            raise click.UsageError("--prefix, --gateway and --dns are about --interface")
        return None
    if prefix is None:
        raise click.UsageError("--interface and --prefix belong together")
    if not _INTERFACE.fullmatch(interface) or interface in _FABRIC:
        raise click.UsageError("--interface is the name of the management interface, like enP7s7")
    return Management(interface, prefix, gateway, dns)


def _ours(path: Path) -> None:
    """Raises ClickException for a file that somebody else wrote."""
    try:
        there = path.exists() or path.is_symlink()
        text = regular.read_bytes(path, _LONGEST).decode(errors="replace") if there else MARK
    except OSError as fault:
        raise click.ClickException(f"{path}: {fault.strerror}; nothing was written") from None
    if MARK not in text[:400]:
        raise click.ClickException(f"{path}: is there and was not written by sparkrack seed; nothing was written")
