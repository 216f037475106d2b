"""What the files of a seed say. Pure: no file is read or written, and no secret is known here."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from sparkrack.fleet import Node, Rack
from sparkrack.seed.network import Management, network

MARK = "written by sparkrack seed"
"""Stands in the head of each file; without it a file is not ours to write over."""
CLOUD = "#cloud-config"
"""The first line of what cloud-init takes for its own."""


def cloud_config(rack: Rack, node: Node, key: str) -> dict[str, Any]:
    """What the first boot does: name, login user with our key and sudo, host keys of its own, no password, no upgrade.

    Host keys are made on the node: one in a seed would be a secret on whatever medium carries it.
    """
    return {
        "hostname": node.name,
        "preserve_hostname": False,
        "ssh_pwauth": False,
        "disable_root": True,
        "ssh_deletekeys": True,
        "ssh_genkeytypes": ["ed25519", "ecdsa", "rsa"],
        "users": [
            {
                "name": rack.access.user,
                "gecos": f"operator of {rack.rack}",
                "shell": "/bin/bash",
                "lock_passwd": True,
                "sudo": "ALL=(ALL:ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": [key],
            }
        ],
        "package_update": False,
        "package_upgrade": False,
        "package_reboot_if_required": False,
    }


def seed(rack: Rack, node: Node, key: str, management: Management | None) -> dict[str, str]:
    """The files of cloud-init's NoCloud source, by name. Raises NetworkError."""
    head = f"# {node.name} of the rack {rack.rack}, {MARK}. No secret is in it."
    # The same ID for ever: with another one cloud-init would take a running node for a new one, and make new host keys.
    instance = {"instance-id": f"sparkrack-{rack.rack}-{node.name}", "local-hostname": node.name}
    return {
        "user-data": _text(f"{CLOUD}\n{head}", cloud_config(rack, node, key)),
        "meta-data": _text(head, instance),
        "network-config": _text(head, network(node, management)),
    }


def autoinstall(rack: Rack, node: Node, key: str, management: Management | None, erase: str | None) -> dict[str, str]:
    """The files for Ubuntu's installer, by name. `erase`: the disk that it may erase; without it the installer stops
    and asks a person about the disks. Raises NetworkError."""
    head = f"# {node.name} of the rack {rack.rack}, {MARK}. No secret is in it."
    install: dict[str, Any] = {"version": 1}
    if erase is None:
        install["interactive-sections"] = ["storage"]
    else:
        install["storage"] = {"layout": {"name": "direct", "match": {"path": erase}}}
    if management is not None:
        install["network"] = network(node, management)
    install["ssh"] = {"install-server": True, "allow-pw": False}
    # No section identity: it would want the hash of a password. The user is made by the first boot.
    install["user-data"] = cloud_config(rack, node, key)
    install["shutdown"] = "reboot"
    return {
        "user-data": _text(f"{CLOUD}\n{head}", {"autoinstall": install}),
        "meta-data": _text(head, {"instance-id": f"sparkrack-{rack.rack}-{node.name}-install"}),
    }


def _text(head: str, data: dict[str, Any]) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096  # a key stays on one line
    out = io.StringIO()
    yaml.dump(data, out)
    return f"{head}\n{out.getvalue()}"
