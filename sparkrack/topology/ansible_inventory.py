"""The rack as an inventory of Ansible."""

from __future__ import annotations

import io
import shlex
from typing import Any

from ruamel.yaml import YAML

from core.model import Rack
from core.util.command_error import CommandError


def inventory_yaml(rack: Rack) -> str:
    """Return the inventory as YAML. Raises CommandError as `inventory` does."""
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(inventory(rack), text)
    return text.getvalue()


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
