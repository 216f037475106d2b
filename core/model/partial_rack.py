"""Partial rack of an invalid file, so that one error does not hide the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from core.model.fields import Section
from core.model.model_lock import ModelRecord
from core.model.models import Model
from core.model.role import Role, roles
from core.model.schema import Rack
from core.model.sections import Access, Fabric, Node
from core.model.switch_schema import Switch

Entry = TypeVar("Entry", bound=BaseModel)

NOWHERE = IPv4Address(0)
"""Stands for a management address that could not be read; no rule looks at it."""


@dataclass(frozen=True)
class PartialRack:
    """The sections of a file that could be read. `options`: those of roles, by key.

    `unread` names the machines that could not; if not `complete`, what is absent may just be unread. `sound`: all
    sections could be read, so that what is absent in images and models is not declared. `records` and `image_ids`: what
    the lock file has of models and images; `locked`: what it has for the rules of a role, by key.
    """

    nodes: Mapping[str, Node]
    switches: Mapping[str, Switch]
    access: Access | None
    fabric: Fabric | None
    options: Mapping[str, Section]
    images: tuple[str, ...]
    leave: frozenset[str]
    unread: frozenset[str]
    complete: bool
    sound: bool = False
    models: Mapping[str, Model] = field(default_factory=dict)
    records: Mapping[str, ModelRecord] = field(default_factory=dict)
    image_ids: Mapping[str, str] = field(default_factory=dict)
    locked: Mapping[str, Any] = field(default_factory=dict)


def partial_from_rack(rack: Rack, complete: bool) -> PartialRack:
    """The partial of a rack whose sections are all sound."""
    return PartialRack(
        rack.nodes,
        rack.switches,
        rack.access,
        rack.fabric,
        {role.key: section for role in _with_rules() if (section := getattr(rack, role.key)) is not None},
        rack.images,
        frozenset(rack.leave),
        frozenset(),
        complete,
        sound=True,
        models=rack.models,
    )


def partial_from_invalid(data: Mapping[str, Any], context: Mapping[str, Any], complete: bool) -> PartialRack:
    """Build the partial of a file with errors in its sections."""
    nodes = dict(_NODES.sound(data.get("nodes"), context))
    switches = dict(_SWITCHES.sound(data.get("switches"), context))
    unread = {name for section in (nodes, switches) for name, machine in section.items() if machine is None}
    try:
        access = Access.model_validate(data.get("access", {}), context=context)
    except ValidationError:
        access = None
    try:
        fabric = Fabric.model_validate(data.get("fabric", {}))
    except ValidationError:
        fabric = None
    options = {}
    for role in _with_rules():
        if role.options and role.declared(data.get(role.key)):
            with suppress(ValidationError):
                options[role.key] = role.options.model_validate(data.get(role.key, {}), context=context)
    complete &= isinstance(data.get("nodes"), dict) and isinstance(data.get("switches", {}), dict)
    return PartialRack(
        {name: node for name, node in nodes.items() if node},
        {name: switch for name, switch in switches.items() if switch},
        access,
        fabric,
        options,
        (),
        _text_keys(data.get("leave")),
        frozenset(unread),
        complete and not unread,
    )


def _with_rules() -> Iterator[Role]:
    return (role for role in roles() if role.rules)


def _text_keys(section: object) -> frozenset[str]:
    return frozenset(word for word in section if isinstance(word, str)) if isinstance(section, list) else frozenset()


@dataclass(frozen=True)
class _Kind(Generic[Entry]):
    """A kind of host: the fields that the rules between hosts need, and placeholders for the rest."""

    model: type[Entry]
    needed: frozenset[str]
    stand_in: Mapping[str, Any]

    def sound(self, section: object, context: Mapping[str, Any]) -> Iterator[tuple[str, Entry | None]]:
        """Yield each host of `section` by name; None if a key that the rules need is invalid."""
        for name, entry in section.items() if isinstance(section, dict) else ():
            yield name, self._read_entry(entry, dict(context))

    def _read_entry(self, entry: object, context: dict[str, Any]) -> Entry | None:
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


_NODES = _Kind(Node, frozenset({"name", "ports", "host"}), {"address": NOWHERE})
_SWITCHES = _Kind(
    Switch,
    frozenset({"name", "model", "cages", "mtu", "l2mtu"}),
    {
        "address": NOWHERE,
        "tls": {"sha256": "0" * 64},
        "user": "unread",
        "password": {"env": "UNREAD"},
    },
)
