"""A role: what the program knows of a package that brings nodes, or the switch, to their declared state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from core.model.errors import RuleViolation
from core.model.fields import Section

REGISTRY = "roles.registry"
"""The module that names the packages of all roles. It is loaded by name: core imports no role, see decision 0019."""


@dataclass(frozen=True)
class AdoptedOption:
    """An option that `sparkrack adopt` reads from the nodes.

    `option`: its key in the role's section. `command`: the shell command that a node runs, which only reads. `parse`:
    the value that the command's output means, or None when the node has none; raises ValueError for any other text.
    """

    option: str
    command: str
    parse: Callable[[str], object]


@dataclass(frozen=True)
class Role:
    """One role: everything outside its package that depends on it is computed from this value.

    `package`: the package that holds it, `__name__` there. `title`: the name of its operations in pyinfra. `promise`:
    what it does, in a sentence without subject. `proof`: by what `sparkrack verify` proves it; both stand in README.md.
    """

    package: str
    title: str
    promise: str
    proof: str
    options: type[Section] | None = None
    """The model of its section in rack.yaml, which has the role's key; None if it has no section of its own."""
    machine: Literal["node", "switch"] = "node"
    """The kind of machine that it is applied to."""
    gate: bool = False
    """It decides whether anything may be changed: it is part of every run, and no rack file can leave it alone."""
    opt_in: bool = False
    """It does nothing unless rack.yaml has its section, or its list, under its key."""
    risky: bool = False
    """It can cut a machine off or end what runs there: the first machine that an operation changes goes alone."""
    spreads: bool = False
    """What a node gets depends on the other nodes: after one node is rebuilt, it is applied to all of them."""
    alone: bool = True
    """It can be applied to a rebuilt node before the other nodes are reached."""
    links: bool = False
    """A change of the switch can break it: it is verified after a switch is rebuilt."""
    adopts_in_place: bool = False
    """It accepts files of others with the same content as ours, so that `sparkrack adopt` does not leave it alone."""
    rules: Callable[..., Iterable[RuleViolation]] | None = None
    """What must hold between its section and the rest of the rack file, called with the valid parts of the file, the
    role's options and the cabling."""
    rules_need_sound_file: bool = True
    """Its rules are asked only of a file whose machines could all be read and whose cables fit together."""
    read_lock: Callable[[Path], Any] | None = None
    """Reads what its rules know from the lock file beside models and images; called with the path of rack.lock.json."""
    named: tuple[str, ...] = ()
    """Keys of its section whose entries are filed under their names."""
    reserved_gib: Callable[[Any], float] | None = None
    """GiB of a node's memory that its section takes away from all programs; called with the role's options."""
    adopt: tuple[AdoptedOption, ...] = ()
    """What `sparkrack adopt` can write into its section."""

    @property
    def key(self) -> str:
        """Its name: of its folder, of its section in rack.yaml, and for --only."""
        return self.package.rpartition(".")[2]

    @property
    def can_be_left(self) -> bool:
        """Whether `leave` in rack.yaml may name it. Of a switch only what is declared is managed anyway."""
        return self.machine == "node" and not self.gate

    @property
    def verify_file(self) -> str:
        """The file of its checks, relative to the top of the project."""
        return f"{self.package.replace('.', '/')}/verify.py"

    def module(self, name: str) -> ModuleType:
        """A module of its package, imported when it is first asked for."""
        return import_module(f"{self.package}.{name}")

    def declared(self, section: Any) -> bool:
        """Whether a rack file with this value under the role's key gives it something to do."""
        return bool(section) or not self.opt_in


@cache
def roles() -> tuple[Role, ...]:
    """All roles, in the order of a run."""
    return tuple(import_module(package).ROLE for package in import_module(REGISTRY).PACKAGES)


def role_named(key: str) -> Role:
    """The role with this key. Raises KeyError."""
    for role in roles():
        if role.key == key:
            return role
    raise KeyError(key)


def reserved_gib(section: Callable[[str], object]) -> float:
    """Return the GiB of a node that no program gets. `section`: returns the options of a role by its key, or None."""
    return sum(
        role.reserved_gib(found) for role in roles() if role.reserved_gib and (found := section(role.key)) is not None
    )
