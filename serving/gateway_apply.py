"""Install the gateway of the served units on its node, and remove it from a node that no longer has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.ops import apt, host_facts
from core.ops.managed_service import NO_CHANGES, ServiceChanges
from core.ops.operation import Changeset, operation_on_host
from core.ops.shell import sudo_script
from core.util.event import Action, Event, EventKind, acted, file_acted
from serving import gateway as gateway
from serving import gateway_certificate as gateway_certificate
from serving import gateway_router as gateway_router
from serving import run_inventory as survey
from serving.desired import PrivateFile
from serving.gateway_facts import GatewayFacts
from serving.options import ServingGateway, served_units
from serving.run_inventory import RunSecrets
from serving.services import GATEWAY, ROUTER

_FOLDER_STATE = "700 root:root"


@dataclass(frozen=True)
class NodeGateway:
    """What a node has of the gateway, and the gateway if it is on this node."""

    rack: Rack
    facts: GatewayFacts
    secrets: RunSecrets
    gateway: ServingGateway | None


def _read_gateway(host: Host, rack: Rack, node: Node) -> NodeGateway:
    facts = GatewayFacts(host_facts.read(host, "serving")).whole()
    return NodeGateway(rack, facts, survey.run_secrets(host.state, rack), gateway.declared(rack, node.name))


@operation_on_host(_read_gateway)
def install_gateway(here: NodeGateway) -> Changeset:
    """Install nginx and write what differs of the gateway, then have it reload; requests that run go on. Remove the
    gateway where rack.yaml has none.
    """
    if here.gateway is None:
        return _plan_removal(here.facts)
    private = [_render_keys(here, here.gateway), *_list_certificate_files(here, here.gateway)]
    return _plan_changes(here, here.gateway, private)


def _render_keys(here: NodeGateway, declared: ServingGateway) -> PrivateFile:
    clients = {name: here.secrets.resolve(ref) for name, ref in declared.keys.items()}
    units = served_units(here.rack).values()
    keys = {unit.name: here.secrets.resolve(unit.api.key) for unit in units if unit.api.key}
    return gateway.keys_file(here.rack, declared, clients, keys)


def _list_certificate_files(here: NodeGateway, declared: ServingGateway) -> Iterator[PrivateFile]:
    """The certificate, unless a self-signed one is there that may stay."""
    if declared.certificate:
        key = here.secrets.resolve(declared.certificate.key)
        yield gateway.certificate_file(gateway_certificate.declared_pem(here.rack, declared.certificate, key))
        return
    address = gateway.address(here.rack, declared)
    state = here.facts.files.get(gateway.CERTIFICATE)
    fault = gateway_certificate.self_signed_fault(here.facts.certificate, declared, address)
    if fault or state is None or state.permissions != "600 root:root":
        yield gateway.certificate_file(gateway_certificate.self_signed_pem(declared, address))


def _plan_changes(here: NodeGateway, declared: ServingGateway, private: list[PrivateFile]) -> Changeset:
    facts = here.facts
    installing = not facts.nginx or gateway.INSTALLING in facts.files
    changes = NO_CHANGES
    if facts.folder != _FOLDER_STATE:
        events = file_acted(Action.PERMISSIONS if facts.folder else Action.WRITE, f"{gateway.FOLDER}/")
        changes += ServiceChanges(events, (sudo_script(f"install -d -m 700 -o root -g root {gateway.FOLDER}"),))
    if installing:
        changes += ServiceChanges(acted(Action.INSTALL, gateway.PACKAGE), (_install_nginx(),))
    # nginx judges its configuration together with the keys and the certificate.
    files = [*(file.managed for file in private), *gateway.files(here.rack, declared)]
    reasons = {gateway.SERVICE: f"{gateway.PACKAGE} is installed"} if installing else {}
    changes += GATEWAY.differences(facts.service(GATEWAY, files), reasons)
    changes += ROUTER.differences(facts.service(ROUTER, gateway_router.files(here.rack, declared)))
    return changes.changeset("the gateway is as declared", tuple(_note_closed_units(here)))


def _install_nginx() -> StringCommand:
    """Return the command that installs nginx without the server that its package starts at port 80.

    An nginx that was there before is left as it is: its own service has nothing to do with the gateway.
    """
    install = apt.install_script(gateway.PACKAGE, downgrade=False, held=False)
    return sudo_script(
        f"[ -x {gateway.NGINX} ] || : > {gateway.INSTALLING}; [ -e {gateway.INSTALLING} ] || exit 0; "
        # Until the next boot at most; the package does not start what is masked.
        f"systemctl --runtime mask --quiet nginx.service\n{install}\n"
        f"systemctl --runtime unmask --quiet nginx.service; systemctl disable --quiet nginx.service; "
        f"rm -f {gateway.INSTALLING}"
    )


def _note_closed_units(here: NodeGateway) -> Iterator[Event]:
    """A unit that stays closed: an earlier `serve stop` was interrupted, or it was closed by hand."""
    for name in here.facts.closed:
        detail = f"closed at the gateway; `{gateway.PROGRAM} open {name}` there opens it"
        yield Event(EventKind.BROKEN, subject=f"unit {name}", detail=detail)


def _plan_removal(facts: GatewayFacts) -> Changeset:
    why = "rack.yaml has none on this node"
    changes = GATEWAY.removal(facts.service(GATEWAY), why, f"rm -rf {gateway.RUN}")
    if changes.commands:
        folder = f"[ ! -d {gateway.FOLDER} ] || rmdir --ignore-fail-on-non-empty {gateway.FOLDER}"
        changes += ServiceChanges(commands=(sudo_script(folder),))
    changes += ROUTER.removal(facts.service(ROUTER), why)
    return changes.changeset("the gateway is not on this node")
