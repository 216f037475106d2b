"""Install the gateway of the served units on its node, and remove it from a node that no longer has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.ops import apt, host_facts, remote_files
from core.ops.managed_service import ServiceChanges
from core.ops.operation import Changeset, operation_on_host
from core.ops.shell import quote, sudo_script
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted, file_acted
from core.util.managed_file import ManagedFile
from serving import desired
from serving import gateway as gateway
from serving import gateway_certificate as gateway_certificate
from serving import gateway_router as gateway_router
from serving import run_inventory as survey
from serving.desired import PrivateFile
from serving.gateway_facts import GatewayFacts
from serving.options import ServingGateway, served_units
from serving.run_inventory import RunSecrets
from serving.services import ROUTER

_FOLDER_STATE = "700 root:root"
_WANTS = f"{desired.UNITS}/multi-user.target.wants/{gateway.SERVICE}"


@dataclass(frozen=True)
class NodeGateway:
    """What a node has of the gateway, and the gateway if it is on this node."""

    rack: Rack
    facts: GatewayFacts
    secrets: RunSecrets
    gateway: ServingGateway | None


def _read(host: Host, rack: Rack, node: Node) -> NodeGateway:
    facts = GatewayFacts(host_facts.read(host, "serving")).whole()
    return NodeGateway(rack, facts, survey.run_secrets(host.state, rack), gateway.declared(rack, node.name))


@operation_on_host(_read)
def install_gateway(here: NodeGateway) -> Changeset:
    """Install nginx and write what differs of the gateway, then have it reload; requests that run go on. Remove the
    gateway where rack.yaml has none.
    """
    if here.gateway is None:
        return _remove(here.facts)
    private = [_keys(here, here.gateway), *_certificate(here, here.gateway)]
    return _changes(here, here.gateway, private)


def _keys(here: NodeGateway, declared: ServingGateway) -> PrivateFile:
    clients = {name: here.secrets.resolve(ref) for name, ref in declared.keys.items()}
    units = served_units(here.rack).values()
    keys = {unit.name: here.secrets.resolve(unit.api.key) for unit in units if unit.api.key}
    return gateway.keys_file(here.rack, declared, clients, keys)


def _certificate(here: NodeGateway, declared: ServingGateway) -> Iterator[PrivateFile]:
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


def _changes(here: NodeGateway, declared: ServingGateway, private: list[PrivateFile]) -> Changeset:
    facts, made = here.facts, gateway.files(here.rack, declared)
    files = managed_file.differing(made, facts.files)
    secret = [file for file in private if facts.files.get(file.path) != survey.private_state(file)]
    folder = facts.folder != _FOLDER_STATE
    installing = not facts.nginx or gateway.INSTALLING in facts.files
    pending = gateway.PENDING in facts.files
    events = [*(acted(Action.INSTALL, gateway.PACKAGE) if installing else ())]
    if folder:
        events += file_acted(Action.PERMISSIONS if facts.folder else Action.WRITE, f"{gateway.FOLDER}/")
    events += managed_file.changes(files, facts.files)
    for file in secret:
        there = file.path in facts.files
        # Never its content, nor a hash of it.
        events += file_acted(Action.REWRITE if there else Action.WRITE, file.path, detail="differs" if there else None)
    events += acted(Action.ENABLE, gateway.SERVICE) if not facts.enabled else ()
    changed = bool(files or secret or pending or installing)
    if changed or not facts.running:
        detail = "an earlier run was not finished" if pending and not files and not secret else None
        events.append(Event(EventKind.RESTART, subject=gateway.SERVICE, action=_action(facts, files), detail=detail))
    warnings = tuple(_closed(here))
    router = ROUTER.differences(facts.router(gateway_router.files(here.rack, declared)))
    nginx = ServiceChanges(tuple(events), tuple(_commands(facts, files, secret, installing, folder, changed)))
    return (nginx + router).changeset("the gateway is as declared", warnings)


def _action(facts: GatewayFacts, files: list[ManagedFile]) -> Action:
    if not facts.running:
        return Action.START
    return Action.RESTART if any(file.path == gateway.SERVICE_FILE for file in files) else Action.RELOAD


def _commands(
    facts: GatewayFacts,
    files: list[ManagedFile],
    secret: list[PrivateFile],
    installing: bool,
    folder: bool,
    changed: bool,
) -> Iterator[StringCommand]:
    if folder or installing:
        yield sudo_script(
            f"umask 022; install -d -m 755 {gateway.PROGRAM.rpartition('/')[0]}; "
            f"install -d -m 700 -o root -g root {gateway.FOLDER}"
        )
    if installing:
        yield _install()
    if changed:
        yield sudo_script(f"umask 077; : > {gateway.PENDING}")
    # nginx judges its configuration together with the keys and the certificate.
    for file in secret:
        yield remote_files.put(file.path, file.content.get_secret_value(), mode=file.mode)
    yield from map(remote_files.put_managed, files)
    steps = ["systemctl daemon-reload"] if any(file.path == gateway.SERVICE_FILE for file in files) else []
    steps += [f"systemctl --no-reload enable --quiet {gateway.SERVICE}"] if not facts.enabled else []
    if changed or not facts.running:
        verb = "restart" if _action(facts, files) is Action.RESTART else "reload-or-restart"
        steps += [f"systemctl {verb} {gateway.SERVICE}", f"rm -rf {gateway.PENDING} {gateway.OLD_CACHE}"]
    if steps:
        yield sudo_script("; ".join(steps))


def _install() -> StringCommand:
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


def _closed(here: NodeGateway) -> Iterator[Event]:
    """A unit that stays closed: an earlier `serve stop` was interrupted, or it was closed by hand."""
    for name in here.facts.closed:
        detail = f"closed at the gateway; `{gateway.PROGRAM} open {name}` there opens it"
        yield Event(EventKind.BROKEN, subject=f"unit {name}", detail=detail)


def _remove(facts: GatewayFacts) -> Changeset:
    why = "rack.yaml has none on this node"
    router = ROUTER.removal(facts.router(), why)
    paths = [path for path in gateway.PATHS if path in facts.files]
    if not paths and not facts.enabled and not facts.running:
        return router.changeset("the gateway is not on this node")
    # `systemctl disable` fails when the unit was removed and its link was left.
    there = f"[ ! -e {gateway.SERVICE_FILE} ] || systemctl stop {gateway.SERVICE}"
    folders = f"{gateway.RUN} {gateway.OLD_CACHE}"
    removal = f"{there}; rm -f {quote(_WANTS, *paths)}; systemctl daemon-reload; rm -rf {folders}"
    nginx = ServiceChanges(
        acted(Action.STOP_AND_REMOVE, "gateway", detail=why),
        (sudo_script(f"{removal}; [ ! -d {gateway.FOLDER} ] || rmdir {gateway.FOLDER}"),),
    )
    return (nginx + router).changeset("the gateway is not on this node")
