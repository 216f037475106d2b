"""`sparkrack init`: the first rack file, from what can be found."""

from __future__ import annotations

import sys
from typing import Any

import click

from core.model import SecretError, SecretRef
from core.util.command_error import CommandError
from sparkrack.cli.discovery_options import DiscoveryOptions, discovery_options, parse_options
from sparkrack.cli.discovery_run import Discovery, say
from sparkrack.cli.next_step import next_step
from sparkrack.cli.prompts import confirm
from sparkrack.cli.write_rack_file import print_list, validated_text, written
from sparkrack.discovery.describe import FoundRack, FoundSwitch, describe
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.operator_subnets import operator_subnets, session_address
from sparkrack.discovery.switch_facts import www_ssl_port
from sparkrack.discovery.yaml_writer import text
from switch.bootstrap.passwords import Password


@click.command()
@discovery_options
@click.option("--no-reader", is_flag=True, help="Declare no read-only user of the switch for verify.")
@click.option("--no-management", is_flag=True, help="Do not limit the services of the switch to your subnet.")
def init(no_reader: bool, no_management: bool, **given: Any) -> None:
    """Write the first rack.yaml: what cannot be discovered is asked, or left as a gap that is listed.

    \b
      sparkrack init --node spark1=10.77.0.11 --node spark2=10.77.0.12 --switch 10.77.0.2
      sparkrack init          on a terminal: asks, and looks for machines that are near

    A node that accepts the key reports its vendor and its ports; a switch that accepts its user reports how its cages
    are split and which node is connected to which leg. Nothing is changed on them. An existing file is
    shown as a difference first.
    For a switch, the file declares a read-only user, whose password is generated into a file beside it, and limits the
    services of the switch to the subnet from which this machine reaches it.
    Exit 0: the file is ready. 2: it is written, and has gaps. 1: nothing was written.
    """
    options = parse_options(**given)
    discovery = Discovery(options, strict=False)
    found = discovery.run()
    sheet = describe(found, live=False)
    sheet.heads[()] = ["Written by sparkrack init; yours to edit. sparkrack check judges it without connecting."]
    passwords = []
    for name, box in found.boxes.items():
        if not no_management:
            _propose_management(sheet, name, box, found, options)
        if not no_reader and _agreed(f"declare a read-only user of {name} for verify?"):
            passwords.append(_propose_reader(sheet, name, box, options))
    _, faults = validated_text(text(sheet), options.out)
    written(
        sheet,
        options.out,
        discovery.pins,
        discovery.file,
        options.ssh_port,
        yes=options.yes,
        prepare=lambda: _make(passwords),
    )
    print_list("not found", sheet.missing)
    print_list("not as found", sheet.unrepresentable)
    print_list("not ready", faults)
    if faults or sheet.missing:
        click.echo(f"{options.out} is not ready: fix these lines")
        next_step(["sparkrack", "check"], "when they are fixed", rack=options.out)
        sys.exit(2)
    click.echo(f"{options.out} is ready; if all hosts log in already, sparkrack plan comes next")
    next_step(["sparkrack", "bootstrap"], rack=options.out)


def _propose_management(
    sheet: RackDraft, name: str, box: FoundSwitch, found: FoundRack, options: DiscoveryOptions
) -> None:
    """Declare the subnets of this machine as those that may reach the switch, if the operator agrees."""
    session = session_address(box.facts, options.switch_user) if box.facts else None
    hosts = [box.address, *(node.address for node in found.nodes.values())]
    subnets, why = operator_subnets(hosts, session)
    if why:
        say(f"{name}: management is left out: {why}")
    elif _agreed(f"limit the services of {name} to {', '.join(subnets)}, the subnet of this machine?"):
        place = sheet.section("switches", name)
        place["management"] = subnets
        sheet.note(("switches", name, "management"), "what may reach the switch: the subnet of the operator")


def _propose_reader(sheet: RackDraft, name: str, box: FoundSwitch, options: DiscoveryOptions) -> Password:
    """Declare a read-only user. Return its password, whose file is beside the rack file."""
    file = f"{name}-reader.password"
    reader: dict[str, Any] = {"password": {"file": file}}
    if box.facts and (port := www_ssl_port(box.facts)):
        reader["port"] = port
    sheet.section("switches", name)["reader"] = reader
    sheet.note(("switches", name, "reader"), "verify reads the switch over REST as a user who cannot write")
    return Password(SecretRef(file=options.out.absolute().parent / file))


def _make(passwords: list[Password]) -> None:
    for password in passwords:
        try:
            if password.make():
                say(f"{password.ref.file}: written; it is readable by you only")
        except SecretError as fault:
            raise CommandError(f"{fault}; the rack file was not written") from None


def _agreed(question: str) -> bool:
    """Ask on a terminal, where yes is the default; yes without one."""
    return not sys.stdin.isatty() or confirm(question, default=True)
