"""`sparkrack export`: what other tools need to reach the rack, from the rack file alone."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import click

from core.model import Rack, load
from core.util.command_error import CommandError
from sparkrack.cli.options import rack_option


@click.group()
def export() -> None:
    """Print what other tools need, from the rack file alone: nothing is connected to, and no secret is printed."""


@export.command("ssh-config")
@rack_option
def ssh_config(rack: Path) -> None:
    """Print an OpenSSH configuration of the nodes, for `ssh -F FILE NODE` or an Include."""
    from core.ssh import client

    found = load(rack)
    # Only for the nodes: with `Host *` an Include would change how every other host is reached.
    click.echo(client.ssh_config(found).replace("Host *\n", f"Host {' '.join(found.nodes)}\n", 1), nl=False)


@export.command("ansible-inventory")
@rack_option
def ansible_inventory(rack: Path) -> None:
    """Print an Ansible inventory (YAML) with the groups nodes and switches; a switch has no password there."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(inventory(load(rack)), text)
    click.echo(text.getvalue(), nl=False)


@export.command("hosts")
@rack_option
def hosts(rack: Path) -> None:
    """Print the lines of /etc/hosts that role access writes on the nodes."""
    from roles.access.etc_hosts import block

    found = load(rack)
    head = next(iter(found.nodes.values()))
    click.echo(block(found, head, [head.name]).decode(), nl=False)


def inventory(rack: Rack) -> dict[str, Any]:
    """Return the inventory as data. Raises CommandError for a path that Ansible would take for a template."""
    access = rack.access
    for path in (access.key, access.known_hosts):
        if any(mark in str(path) for mark in ("{{", "{%", "{#")):
            raise CommandError(f"{path}: Ansible takes this path for a template; rename it")
    # OpenSSH takes `%` in these paths for a token.
    key, known = (str(path).replace("%", "%%") for path in (access.key, access.known_hosts))
    options = (
        f'UserKnownHostsFile="{known}"',
        *("GlobalKnownHostsFile=/dev/null", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes"),
    )
    common = {
        "ansible_port": access.port,
        "ansible_user": access.user,
        "ansible_ssh_private_key_file": key,
        "ansible_ssh_common_args": shlex.join(word for option in options for word in ("-o", option)),
    }
    switches = {
        name: {"ansible_host": str(switch.address), "ansible_user": switch.user}
        for name, switch in rack.switches.items()
    }
    network = {
        "ansible_connection": "ansible.netcommon.network_cli",
        "ansible_network_os": "community.routeros.routeros",
    }
    nodes = {name: {"ansible_host": str(node.address)} for name, node in rack.nodes.items()}
    return {
        "all": {
            "children": {"nodes": {"hosts": nodes, "vars": common}, "switches": {"hosts": switches, "vars": network}}
        }
    }
