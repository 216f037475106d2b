"""Content of the files of a seed. Pure: no file is read or written, and no secret is known here."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from core.model import Node, Rack
from sparkrack.cloud_init.network_config import Management, network

MARK = "written by sparkrack seed"
"""Stands in the head of each file; without it a file is not ours to write over."""
CLOUD = "#cloud-config"
"""The first line of what cloud-init takes for its own."""


def cloud_config(rack: Rack, node: Node, key: str) -> dict[str, Any]:
    """Return the configuration of the first boot: name, login user with our key and sudo, new host keys, no password,
    no upgrade.

    Host keys are generated on the node: one in a seed would be a secret on the medium that carries it.
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


# claim: seed.nocloud
def seed_files(rack: Rack, node: Node, key: str, management: Management | None) -> dict[str, str]:
    """The files of cloud-init's NoCloud source, by name. Raises NetworkError."""
    head = f"# {node.name} of the rack {rack.rack}, {MARK}. No secret is in it."
    # Always the same ID: with another one cloud-init would treat a running node as new, and create new host keys.
    instance = {"instance-id": f"sparkrack-{rack.rack}-{node.name}", "local-hostname": node.name}
    return {
        "user-data": _yaml_text(f"{CLOUD}\n{head}", cloud_config(rack, node, key)),
        "meta-data": _yaml_text(head, instance),
        "network-config": _yaml_text(head, network(node, management)),
    }


# claim: seed.autoinstall
def autoinstall(rack: Rack, node: Node, key: str, management: Management | None, erase: str | None) -> dict[str, str]:
    """Return the files for Ubuntu's installer, by name. `erase`: the disk that it may erase; without it the installer
    stops and asks about the disks. Raises NetworkError.
    """
    head = f"# {node.name} of the rack {rack.rack}, {MARK}. No secret is in it."
    install: dict[str, Any] = {"version": 1}
    if erase is None:
        install["interactive-sections"] = ["storage"]
    else:
        install["storage"] = {"layout": {"name": "direct", "match": {"path": erase}}}
    if management is not None:
        install["network"] = network(node, management)
    install["ssh"] = {"install-server": True, "allow-pw": False}
    # No section identity: it needs the hash of a password. The first boot creates the user.
    install["user-data"] = cloud_config(rack, node, key)
    install["shutdown"] = "reboot"
    return {
        "user-data": _yaml_text(f"{CLOUD}\n{head}", {"autoinstall": install}),
        "meta-data": _yaml_text(head, {"instance-id": f"sparkrack-{rack.rack}-{node.name}-install"}),
    }


def _yaml_text(head: str, data: dict[str, Any]) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096  # a key stays on one line
    out = io.StringIO()
    yaml.dump(data, out)
    return f"{head}\n{out.getvalue()}"
