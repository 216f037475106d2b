"""Commands of each phase, with their hosts. Pure.

The words never contain a secret, only its reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.model import Rack, SecretRef
from core.model.role import roles
from serving.options import served_units
from sparkrack.rebuild.model import Request

FLEET_ROLES = tuple(role for role in roles() if role.spreads)
"""Roles of a rebuilt node that involve the other nodes: keys are exchanged, images copied."""
FABRIC_PARTS = tuple(role.key for role in roles() if role.links)
"""Parts that a rebuilt switch may affect."""


DEFAULT_WAIT_SECONDS = 600
"""Seconds to wait for the machines."""


@dataclass(frozen=True)
class ForwardedOptions:
    """Options of `sparkrack rebuild` that its verbs get. `login`: the account of the first-boot wizard. `packages`: the
    folder of an upgrade of the switch, absolute.
    """

    login: str | None = None
    node_password: SecretRef | None = None
    host_keys: str | None = None
    replace_host_key: bool = False
    switch_password: SecretRef | None = None
    switch_address: str | None = None
    replace_fingerprint: bool = False
    packages: str | None = None
    timeout: float | None = None

    @property
    def wait(self) -> float:
        """Seconds to wait for the machines."""
        return DEFAULT_WAIT_SECONDS if self.timeout is None else self.timeout

    def words(self, *, nodes: bool = True, switch: bool = True) -> tuple[str, ...]:
        """Return the words of the command line of `sparkrack rebuild`."""
        return (
            *(_option_words("--as", self.login) if nodes else ()),
            *(_password_options("node-", self.node_password) if nodes else ()),
            *(_option_words("--host-keys", self.host_keys) if nodes else ()),
            *(("--replace-host-key",) if nodes and self.replace_host_key else ()),
            *(_password_options("switch-", self.switch_password) if switch else ()),
            *(_option_words("--switch-address", self.switch_address) if switch else ()),
            *(("--replace-fingerprint",) if switch and self.replace_fingerprint else ()),
            *(_option_words("--packages", self.packages) if switch else ()),
            *_option_words("--timeout", None if self.timeout is None else f"{self.timeout:g}"),
        )


def bootstrap_nodes(request: Request, forwarded: ForwardedOptions) -> tuple[str, ...]:
    """First contact with the nodes; one that is ready costs a login."""
    return (
        *("bootstrap", "nodes", *request.nodes, "--rack", request.file),
        *_option_words("--as", forwarded.login),
        *_password_options("", forwarded.node_password),
        *_option_words("--host-keys", forwarded.host_keys),
        *(("--replace-host-key",) if forwarded.replace_host_key else ()),
        *_timeout_options(forwarded),
    )


def bootstrap_switch(request: Request, forwarded: ForwardedOptions, name: str) -> tuple[str, ...]:
    """Return the first contact with a switch."""
    return (
        *("bootstrap", "switch", name, "--rack", request.file),
        *_option_words("--address", forwarded.switch_address),
        *_password_options("", forwarded.switch_password),
        *(("--replace-fingerprint",) if forwarded.replace_fingerprint else ()),
        *_timeout_options(forwarded),
    )


def upgrade_switch(request: Request, forwarded: ForwardedOptions, name: str, folder: str) -> tuple[str, ...]:
    """Return the upgrade of a switch, which is nothing to do if it runs that release. It waits by its own default. It
    asks no node: those that are cabled to the switch were asked before, and may be off.
    """
    return (
        *("upgrade", "switch", name, "-y", "--no-nodes", "--rack", request.file, "--packages", folder),
        *_option_words("--address", forwarded.switch_address),
        *_password_options("", forwarded.switch_password),
        *(("--replace-fingerprint",) if forwarded.replace_fingerprint else ()),
    )


def apply(request: Request, rack: Rack) -> tuple[tuple[str, ...], ...]:
    """Return the runs that bring the hosts to their declared state.

    A single node first gets everything that involves no other node. Then its keys are exchanged with the other nodes,
    and images are copied over the fabric; only these two roles run on the other nodes.
    """
    call = ("apply", "-y", "--rack", request.file)
    # As for the upgrade.
    asked = ("--no-nodes",) if served_units(rack) else ()
    if request.kind == "all":
        return ((*call, *_repeated_option("--exclude", request.apart), *asked),)
    if request.kind == "switch":
        return ((*call, *_repeated_option("--limit", request.switches), *asked),)
    present = tuple(name for name in rack.nodes if name not in request.apart)
    if set(present) == set(request.nodes):
        return ((*call, *_repeated_option("--limit", request.nodes)),)
    alone = tuple(role.key for role in roles() if role.machine == "node" and role.alone and rack.keeps(role.key))
    together = tuple(
        role.key for role in FLEET_ROLES if rack.keeps(role.key) and role.declared(getattr(rack, role.key, None))
    )
    first = (*call, *_repeated_option("--limit", request.nodes), *_repeated_option("--only", alone))
    return (
        (first, (*call, *_repeated_option("--limit", present), *_repeated_option("--only", together)))
        if together
        else (first,)
    )


def plan(request: Request, kept: Path, *, quiet: bool) -> tuple[str, ...]:
    """Return the plan for a whole rack, which is kept for `apply`."""
    call = ("plan", "--rack", request.file, "--out", str(kept), *_repeated_option("--exclude", request.apart))
    return (*call, "--quiet") if quiet else call


def serve_status(request: Request) -> tuple[str, ...]:
    """Return the command whose JSON has the states of the units."""
    return ("serve", "status", "--rack", request.file, "--json")


def reboot(request: Request, node: str, containers: bool) -> tuple[str, ...]:
    """Return the command that restarts and verifies one node."""
    call = ("reboot", "-y", "--rack", request.file, "--limit", node)
    return (*call, "--containers") if containers else call


def stop_unit(request: Request, name: str) -> tuple[str, ...]:
    """Return the command that stops a unit on all its nodes."""
    return ("serve", "stop", name, "--rack", request.file)


def start_unit(request: Request, name: str) -> tuple[str, ...]:
    """Return the command that starts a unit and waits until a completion has proven it."""
    return ("serve", "start", name, "--rack", request.file)


def verify(request: Request, rack: Rack) -> tuple[tuple[str, ...], ...]:
    """Return the verifications: of what was rebuilt, and of its effects on the others."""
    call = ("verify", "--rack", request.file)
    apart = _repeated_option("--exclude", request.apart)
    if request.kind == "all":
        return ((*call, *apart),)
    if request.kind == "switch":
        return ((*call, *_repeated_option("--only", FABRIC_PARTS), *apart),)
    others = tuple(name for name in rack.nodes if name not in (*request.nodes, *request.apart))
    proofs = ((*call, *_repeated_option("--limit", request.nodes), *apart),)
    if not (others and rack.keeps("access")):
        return proofs
    return (*proofs, (*call, "--quiet", *_repeated_option("--limit", others), "--only", "access", *apart))


def affected_nodes(rack: Rack, request: Request) -> tuple[str, ...]:
    """The nodes whose work a rebuild can end: those rebuilt, and those cabled to a switch that is."""
    cabled = _cabled_nodes(rack, request)
    return tuple(name for name in rack.nodes if (name in request.nodes or name in cabled) and name not in request.apart)


def affected_units(rack: Rack, request: Request) -> dict[str, tuple[str, ...]]:
    """The declared units that a rebuild can end, each with all its nodes, in the order of rack.yaml: those with a rank
    on an affected node, and those whose ranks meet over a switch that is rebuilt, also where a node is excluded.
    """
    nodes, cabled = {*affected_nodes(rack, request)}, _cabled_nodes(rack, request)
    units = served_units(rack).values()
    ranks = {unit.name: unit.ranks(rack.nodes) for unit in units}
    return {name: on for name, on in ranks.items() if nodes & {*on} or (len(on) > 1 and cabled & {*on})}


def asked_besides(rack: Rack, request: Request) -> tuple[str, ...]:
    """The other nodes of the affected units, excluded ones too. They are asked for the ranks of these units only."""
    nodes = affected_nodes(rack, request)
    return tuple(dict.fromkeys(on for ons in affected_units(rack, request).values() for on in ons if on not in nodes))


def units_to_start(rack: Rack, request: Request) -> tuple[str, ...]:
    """The units that a rebuild may end and that rack.yaml wants up, in its order."""
    units = served_units(rack) if rack.keeps("serving") else {}
    return tuple(name for name in affected_units(rack, request) if name in units and units[name].state == "up")


def _cabled_nodes(rack: Rack, request: Request) -> set[str]:
    return {
        port.node for switch in request.switches for _, port in rack.cabling.legs(switch) if port.node in rack.nodes
    }


def _option_words(option: str, value: str | None) -> tuple[str, ...]:
    return () if value is None else (option, value)


def _password_options(prefix: str, kept: SecretRef | None) -> tuple[str, ...]:
    if kept is None:
        return ()
    return (
        *_option_words(f"--{prefix}password-env", kept.env),
        *_option_words(f"--{prefix}password-file", None if kept.file is None else str(kept.file)),
    )


def _timeout_options(forwarded: ForwardedOptions) -> tuple[str, ...]:
    return _option_words("--timeout", None if forwarded.timeout is None else f"{forwarded.timeout:g}")


def _repeated_option(option: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for name in names for word in (option, name))
