"""The rack as data: rack.yaml is read once, validated as a whole before any connection, and frozen."""

from __future__ import annotations

from core.model.addressing import VLAN_DEVICES, Address
from core.model.cabling import Cable, Cabling, Half, Leg, Port
from core.model.errors import ConfigError, ConfigProblem
from core.model.fields import mebibytes
from core.model.loader import load, rack_path
from core.model.reachability import addresses_of, reachable
from core.model.schema import CONTAINER_SLICE, Rack
from core.model.secrets import SecretError, SecretRef
from core.model.sections import Access, Fabric, Node
from core.model.switch_schema import CageSpec, Reader, Snmp, Switch, Tls

__all__ = [
    "CONTAINER_SLICE",
    "VLAN_DEVICES",
    "Access",
    "Address",
    "Cable",
    "Cabling",
    "CageSpec",
    "ConfigError",
    "ConfigProblem",
    "Fabric",
    "Half",
    "Leg",
    "Node",
    "Port",
    "Rack",
    "Reader",
    "SecretError",
    "SecretRef",
    "Snmp",
    "Switch",
    "Tls",
    "addresses_of",
    "load",
    "mebibytes",
    "rack_path",
    "reachable",
]
