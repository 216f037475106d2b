"""The management interface in a seed. rack.yaml has only a node's address, so the rest is given by options."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

from core.model import Node


class NetworkError(Exception):
    """The given management network is invalid."""


@dataclass(frozen=True)
class Management:
    """One interface and its network. `prefix`: the length of it; `gateway` and `dns` may be left out."""

    interface: str
    prefix: int
    gateway: IPv4Address | None = None
    dns: tuple[IPv4Address, ...] = ()


def network(node: Node, management: Management | None) -> dict[str, Any]:
    """netplan's version 2, as cloud-init and the installer take it; without `management` the network is left as the
    image has it. Raises NetworkError."""
    if management is None:
        return {"config": "disabled"}
    address = IPv4Interface((node.address, management.prefix))
    if node.address in (address.network.network_address, address.network.broadcast_address):
        raise NetworkError(f"{node.name}: {address} is not an address of a machine; see --prefix")
    interface: dict[str, Any] = {"dhcp4": False, "addresses": [str(address)]}
    if management.gateway is not None:
        if management.gateway not in address.network or management.gateway == node.address:
            raise NetworkError(f"{node.name}: gateway {management.gateway} is not beside {address}")
        interface["routes"] = [{"to": "default", "via": str(management.gateway)}]
    if management.dns:
        interface["nameservers"] = {"addresses": [str(address) for address in management.dns]}
    return {"version": 2, "ethernets": {management.interface: interface}}
