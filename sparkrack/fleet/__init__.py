"""The rack as data: read from one file, judged as a whole before any connection, never changed after."""

from __future__ import annotations

from sparkrack.fleet.addressing import VLAN_DEVICES, Address, addresses_of, reachable
from sparkrack.fleet.cabling import Cable, Cabling, Half, Leg, Port
from sparkrack.fleet.containers import SLICE
from sparkrack.fleet.errors import Fault, RackError
from sparkrack.fleet.load import load, rack_path
from sparkrack.fleet.scalars import mebibytes
from sparkrack.fleet.secrets import SecretError, SecretRef
from sparkrack.fleet.settings import Docker, Driver, Memory, Preflight, Rdma
from sparkrack.fleet.splits import CAGES, SPLITS, Split, cage_kind, lane_count, lane_interface
from sparkrack.fleet.switches import CageSpec, Reader, Snmp, Switch, Tls
from sparkrack.fleet.types import Access, Fabric, Node, Rack

__all__ = [
    "CAGES",
    "SLICE",
    "SPLITS",
    "VLAN_DEVICES",
    "Access",
    "Address",
    "Cable",
    "Cabling",
    "CageSpec",
    "Docker",
    "Driver",
    "Fabric",
    "Fault",
    "Half",
    "Leg",
    "Memory",
    "Node",
    "Port",
    "Preflight",
    "Rack",
    "RackError",
    "Rdma",
    "Reader",
    "SecretError",
    "SecretRef",
    "Snmp",
    "Split",
    "Switch",
    "Tls",
    "addresses_of",
    "cage_kind",
    "lane_count",
    "lane_interface",
    "load",
    "mebibytes",
    "rack_path",
    "reachable",
]
