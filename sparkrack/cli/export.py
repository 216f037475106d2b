"""`sparkrack export`: what other tools need to reach the rack, from the rack file alone."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from core.ssh import client
from roles.access.etc_hosts import block
from sparkrack.cli.options import rack_option
from sparkrack.topology.ansible_inventory import inventory_yaml


@click.group()
def export() -> None:
    """Print what other tools need, from the rack file alone: nothing is connected to, and no secret is printed."""


@export.command("ssh-config")
@rack_option
def ssh_config(rack: Path) -> None:
    """Print an OpenSSH configuration of the nodes, for `ssh -F FILE NODE` or an Include."""
    found = load(rack)
    # Only for the nodes: with `Host *` an Include would change how every other host is reached.
    click.echo(client.ssh_config(found).replace("Host *\n", f"Host {' '.join(found.nodes)}\n", 1), nl=False)


@export.command("ansible-inventory")
@rack_option
def ansible_inventory(rack: Path) -> None:
    """Print an Ansible inventory (YAML) with the groups nodes and switches; a switch has no password there."""
    click.echo(inventory_yaml(load(rack)), nl=False)


@export.command("hosts")
@rack_option
def hosts(rack: Path) -> None:
    """Print the lines of /etc/hosts that role access writes on the nodes."""
    found = load(rack)
    head = next(iter(found.nodes.values()))
    click.echo(block(found, head, [head.name]).decode(), nl=False)
