"""As much of a rack file as can be understood, so that one fault does not hide the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from sparkrack.fleet.settings import Rdma
from sparkrack.fleet.switches import Switch
from sparkrack.fleet.types import Access, Fabric, Node, Rack

Entry = TypeVar("Entry", bound=BaseModel)

NOWHERE = IPv4Address(0)
"""Stands for a management address that could not be read; no rule looks at it."""


@dataclass(frozen=True)
class Draft:
    """The sections of a file that could be read.

    `unread` names the machines that could not; if not `complete`, what is absent may just be unread.
    """

    nodes: Mapping[str, Node]
    switches: Mapping[str, Switch]
    access: Access | None
    fabric: Fabric | None
    rdma: Rdma | None
    images: tuple[str, ...]
    leave: frozenset[str]
    unread: frozenset[str]
    complete: bool


def drafted(rack: Rack, complete: bool) -> Draft:
    """The draft of a rack whose sections are all sound."""
    return Draft(
        rack.nodes,
        rack.switches,
        rack.access,
        rack.fabric,
        rack.rdma,
        rack.images,
        frozenset(rack.leave),
        frozenset(),
        complete,
    )


def salvaged(data: Mapping[str, Any], context: Mapping[str, Any], complete: bool) -> Draft:
    """The draft of a file with faults in its sections."""
    nodes = dict(_NODES.sound(data.get("nodes"), context))
    switches = dict(_SWITCHES.sound(data.get("switches"), context))
    unread = {name for section in (nodes, switches) for name, machine in section.items() if machine is None}
    try:
        access = Access.model_validate(data.get("access"), context=context)
    except ValidationError:
        access = None
    try:
        fabric = Fabric.model_validate(data.get("fabric"))
    except ValidationError:
        fabric = None
    try:
        rdma = Rdma.model_validate(data.get("rdma", {}))
    except ValidationError:
        rdma = None
    complete &= isinstance(data.get("nodes"), dict) and isinstance(data.get("switches", {}), dict)
    return Draft(
        {name: node for name, node in nodes.items() if node},
        {name: switch for name, switch in switches.items() if switch},
        access,
        fabric,
        rdma,
        (),
        _words(data.get("leave")),
        frozenset(unread),
        complete and not unread,
    )


def _words(section: object) -> frozenset[str]:
    return frozenset(word for word in section if isinstance(word, str)) if isinstance(section, list) else frozenset()


@dataclass(frozen=True)
class _Kind(Generic[Entry]):
    """A kind of machine: what the rules between machines need of it, and what may stand for the rest."""

    model: type[Entry]
    needed: frozenset[str]
    stand_in: Mapping[str, Any]

    def sound(self, section: object, context: Mapping[str, Any]) -> Iterator[tuple[str, Entry | None]]:
        """Each machine of `section` by name; None when a key the rules need is at fault."""
        for name, entry in section.items() if isinstance(section, dict) else ():
            yield name, self._one(entry, dict(context))

    def _one(self, entry: object, context: dict[str, Any]) -> Entry | None:
        try:
            return self.model.model_validate(entry, context=context)
        except ValidationError as error:
            wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        if not isinstance(entry, dict) or wrong & self.needed:
            return None
        right = {key: value for key, value in entry.items() if key not in wrong}
        try:
            return self.model.model_validate({**self.stand_in, **right}, context=context)
        except ValidationError:
            return None


_NODES = _Kind(Node, frozenset({"name", "ports", "host"}), {"address": NOWHERE, "vendor": "nvidia"})
_SWITCHES = _Kind(
    Switch,
    frozenset({"name", "cages", "mtu", "l2mtu"}),
    {
        "address": NOWHERE,
        "tls": {"sha256": "0" * 64},
        "user": "unread",
        "password": {"env": "UNREAD"},
        "model": "unread",
    },
)
