"""Which verbs each phase calls, and on which machines. Pure.

A secret is never among the words: only where it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkrack.fleet import Rack
from sparkrack.fleet.selection import ROLES
from sparkrack.rebuild.model import Request

FLEET_ROLES = ("access", "images")
"""What a rebuilt node can only get together with the others: keys are exchanged, images handed on."""
FABRIC_PARTS = ("switch", "lossless", "fabric")
"""What a rebuilt switch can have spoilt."""


@dataclass(frozen=True)
class Passing:
    """Options of `sparkrack rebuild` that its verbs get as they are. `login`: the account of the first-boot wizard."""

    login: str | None = None
    node_env: str | None = None
    node_file: str | None = None
    host_keys: str | None = None
    replace_host_key: bool = False
    switch_env: str | None = None
    switch_file: str | None = None
    switch_address: str | None = None
    replace_fingerprint: bool = False
    patience: float | None = None

    def words(self, *, nodes: bool = True, switch: bool = True) -> tuple[str, ...]:
        """As `sparkrack rebuild` has them."""
        return (
            *(_given("--as", self.login) if nodes else ()),
            *(_given("--node-password-env", self.node_env) if nodes else ()),
            *(_given("--node-password-file", self.node_file) if nodes else ()),
            *(_given("--host-keys", self.host_keys) if nodes else ()),
            *(("--replace-host-key",) if nodes and self.replace_host_key else ()),
            *(_given("--switch-password-env", self.switch_env) if switch else ()),
            *(_given("--switch-password-file", self.switch_file) if switch else ()),
            *(_given("--switch-address", self.switch_address) if switch else ()),
            *(("--replace-fingerprint",) if switch and self.replace_fingerprint else ()),
            *_given("--patience", None if self.patience is None else f"{self.patience:g}"),
        )


def bootstrap_nodes(request: Request, passing: Passing) -> tuple[str, ...]:
    """First contact with the nodes; one that is ready costs a login."""
    return (
        *("bootstrap", "nodes", *request.nodes, "--rack", request.file),
        *_given("--as", passing.login),
        *_given("--password-env", passing.node_env),
        *_given("--password-file", passing.node_file),
        *_given("--host-keys", passing.host_keys),
        *(("--replace-host-key",) if passing.replace_host_key else ()),
        *_patience(passing),
    )


def bootstrap_switch(request: Request, passing: Passing, name: str) -> tuple[str, ...]:
    """First contact with a switch."""
    return (
        *("bootstrap", "switch", name, "--rack", request.file),
        *_given("--address", passing.switch_address),
        *_given("--password-env", passing.switch_env),
        *_given("--password-file", passing.switch_file),
        *(("--replace-fingerprint",) if passing.replace_fingerprint else ()),
        *_patience(passing),
    )


def apply(request: Request, rack: Rack) -> tuple[tuple[str, ...], ...]:
    """The runs that bring the machines to their declared state.

    A node alone first gets everything that concerns nobody else. Then its keys are exchanged with the other nodes, and
    images are handed on over the fabric; only there the others are reached, and nothing but those two roles runs.
    """
    call = ("apply", "-y", "--rack", request.file)
    if request.kind == "all":
        return ((*call, *_each("--exclude", request.apart)),)
    if request.kind == "switch":
        return ((*call, *_each("--limit", request.switches)),)
    present = tuple(name for name in rack.nodes if name not in request.apart)
    if set(present) == set(request.nodes):
        return ((*call, *_each("--limit", request.nodes)),)
    alone = tuple(role for role in ROLES if role not in ("images", "switch") and rack.keeps(role))
    together = tuple(role for role in FLEET_ROLES if rack.keeps(role) and (role != "images" or rack.images))
    first = (*call, *_each("--limit", request.nodes), *_each("--only", alone))
    return (first, (*call, *_each("--limit", present), *_each("--only", together))) if together else (first,)


def reboot(request: Request, node: str, containers: bool) -> tuple[str, ...]:
    """Restart one node and prove it."""
    call = ("reboot", "--rolling", "--rack", request.file, "--limit", node)
    return (*call, "--containers") if containers else call


def verify(request: Request, rack: Rack) -> tuple[tuple[str, ...], ...]:
    """The proofs: of what was rebuilt, and of what the others have to do with it."""
    call = ("verify", "--rack", request.file)
    apart = _each("--exclude", request.apart)
    if request.kind == "all":
        return ((*call, *apart),)
    if request.kind == "switch":
        return ((*call, *_each("--only", FABRIC_PARTS), *apart),)
    others = tuple(name for name in rack.nodes if name not in (*request.nodes, *request.apart))
    proofs = ((*call, *_each("--limit", request.nodes), *apart),)
    if not (others and rack.keeps("access")):
        return proofs
    return (*proofs, (*call, "--quiet", *_each("--limit", others), "--only", "access", *apart))


def behind(rack: Rack, request: Request) -> tuple[str, ...]:
    """The nodes whose work a rebuild can end: those rebuilt, and those cabled to a switch that is."""
    cabled = {
        port.node for switch in request.switches for _, port in rack.cabling.legs(switch) if port.node in rack.nodes
    }
    return tuple(name for name in rack.nodes if (name in request.nodes or name in cabled) and name not in request.apart)


def _given(option: str, value: str | None) -> tuple[str, ...]:
    return () if value is None else (option, value)


def _patience(passing: Passing) -> tuple[str, ...]:
    return _given("--patience", None if passing.patience is None else f"{passing.patience:g}")


def _each(option: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for name in names for word in (option, name))
