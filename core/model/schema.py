"""The rack as typed, frozen data: one class for each section of the file, one field for each key."""

from __future__ import annotations

from functools import cache, cached_property
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, create_model

from core.model import addressing, cable_resolver, defaults
from core.model.cabling import Cabling
from core.model.fields import (
    Frozen,
    FrozenDict,
    Image,
    Name,
    NotEmpty,
    Section,
    invalid,
)
from core.model.models import Model
from core.model.role import roles
from core.model.sections import Access, Fabric, Node
from core.model.switch_schema import Switch

Options = TypeVar("Options", bound=Section)

CONTAINER_SLICE = "sparkrack.slice"
"""The systemd slice that all containers of a node are in; its MemoryMax bounds their sum, as far as a kernel counts."""


def _empty_section() -> Any:
    return {}


class RackMachines(Section):
    """The keys of a rack file that stand before the sections of roles."""

    rack: Annotated[Name, defaults.RackName] = Field(
        default_factory=defaults.not_written, validate_default=True, examples=["spark8"]
    )
    access: Access = Field(
        default_factory=_empty_section,
        validate_default=True,
        examples=["{user: ops, key: ~/.ssh/id_ed25519, known_hosts: known_hosts}"],
    )
    nodes: Frozen[str, Node] = Field(examples=["{spark1: {address: 10.77.0.11, ports: {1: spark2/1}}}"])
    switches: Frozen[str, Switch] = FrozenDict({})
    fabric: Fabric = Field(default=Fabric(), examples=["{subnets: [192.168.100.0/24, 192.168.101.0/24]}"])


class Rack(RackMachines):
    """One rack: its nodes in order of rank, its switches, and how they are cabled and kept.

    Here stands what more than one part reads. The class of a loaded rack, `rack_model()`, also has a section for each
    role with options; `options` and `declared` give those. `leave`: what is declared for these roles is neither applied
    nor judged, as in a rack that is taken over bit by bit.
    """

    images: tuple[Image, ...] = Field(default=(), examples=["[scitrera/dgx-spark-sglang:0.5.12]"])
    models: Frozen[str, Model] = FrozenDict({})
    leave: tuple[str, ...] = ()
    source: Path

    def options(self, model: type[Options]) -> Options:
        """The section of the role with these options. Raises LookupError when it has no default and is not in the
        file."""
        found = self.declared(model)
        if found is None:
            raise LookupError(f"{self.source} has no section for {model.__name__}")
        return found

    def declared(self, model: type[Options]) -> Options | None:
        """The same; None when it has no default and is not in the file."""
        for role in roles():
            if role.options is model:
                found: Options | None = getattr(self, role.key)
                return found
        raise LookupError(f"{model.__name__} is the options of no role")

    def keeps(self, role: str) -> bool:
        """Return whether a role is managed: applied and verified."""
        return role not in self.leave

    @cached_property
    def cabling(self) -> Cabling:
        """Every cable of the rack, known from both of its ends."""
        return cable_resolver.resolve_cables(self.nodes, self.switches)[0]

    @cached_property
    def addresses(self) -> tuple[addressing.Address, ...]:
        """The fabric address of every half of every cabled port, by rank, port and half."""
        fabric, hosts = addressing.sourced(self.fabric, self.cabling), addressing.hosts(self.nodes)
        if fabric.pool is not None:
            return tuple(addressing.from_pool(tuple(self.nodes), self.cabling, fabric.pool))
        return tuple(addressing.from_subnets(hosts, self.cabling, fabric.subnets or (), fabric.vlans))

    @cached_property
    def addresses_by_node(self) -> dict[str, tuple[addressing.Address, ...]]:
        """The same by the name of the node; one without cables is not there."""
        found: dict[str, list[addressing.Address]] = {}
        for address in self.addresses:
            found.setdefault(address.half.node, []).append(address)
        return {name: tuple(held) for name, held in found.items()}

    @cached_property
    def addresses_by_subnet(self) -> dict[IPv4Network, tuple[addressing.Address, ...]]:
        """The same by the subnet that they share."""
        found: dict[IPv4Network, list[addressing.Address]] = {}
        for address in self.addresses:
            found.setdefault(address.interface.network, []).append(address)
        return {subnet: tuple(held) for subnet, held in found.items()}

    @cached_property
    def topology(self) -> Literal["direct", "ring", "switch"]:
        """Topology of the rack, derived from the cables and never declared."""
        return cable_resolver.topology(self.cabling)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class of a loaded rack is made at run time, so pickle cannot find it by its name.
        return _restore_rack, (self.__getstate__(),)


def _restore_rack(state: dict[Any, Any]) -> Rack:
    model = rack_model()
    rack = model.__new__(model)
    rack.__setstate__(state)
    return rack


@cache
def rack_model() -> type[Rack]:
    """The class of a loaded rack: `Rack`, with the section of each role that has options, and `leave` limited to roles
    that can be left alone."""
    sections: dict[str, Any] = {}
    for role in sorted(roles(), key=lambda role: role.gate):
        if role.options:
            sections[role.key] = _section_field(role.options, opt_in=role.opt_in)
    if taken := [key for key in sections if hasattr(Rack, key) or key in Rack.model_fields]:
        raise TypeError(f"{', '.join(taken)}: a role with options cannot be called like a part of every rack")
    choice: Any = Literal[tuple(role.key for role in roles() if role.can_be_left)]
    leave = Annotated[tuple[choice, ...], AfterValidator(_refuse_duplicates)]
    # Two steps, so that a message that lists the keys has them in the order in which a rack file is written.
    middle = create_model("RackSections", __base__=RackMachines, __module__=__name__, **sections)
    limited: Any = (leave, Field(default=(), examples=["[memory, docker]"]))
    bases: Any = (Rack, middle)
    make: Any = create_model
    made: type[Rack] = make("Rack", __base__=bases, __module__=__name__, leave=limited)
    return made


def _section_field(model: type[Section], *, opt_in: bool) -> tuple[Any, Any]:
    """The type of a role's section, and its default."""
    return (Annotated[model | None, NotEmpty], None) if opt_in else (model, model())


def _refuse_duplicates(names: tuple[str, ...]) -> tuple[str, ...]:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise invalid(f"lists {name} twice", "list every role once")
    return names
