"""Install the door of the served units on its node, and remove it from a node that no longer has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.ops import apt, host_facts, remote_files
from core.ops.operation import Changeset, operation_on_host
from core.ops.shell import quote, sudo_script
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted, file_acted
from core.util.managed_file import ManagedFile
from serving import desired
from serving import gateway as door
from serving import gateway_certificate as door_certificate
from serving import run_inventory as survey
from serving.desired import PrivateFile
from serving.gateway_facts import DoorFacts
from serving.options import ServingDoor, served_units
from serving.run_inventory import RunSecrets

_FOLDER_STATE = "700 root:root"
_WANTS = f"{desired.UNITS}/multi-user.target.wants/{door.SERVICE}"


@dataclass(frozen=True)
class NodeDoor:
    """What a node has of the door, and the door if it is on this node."""

    rack: Rack
    facts: DoorFacts
    secrets: RunSecrets
    door: ServingDoor | None


def _read(host: Host, rack: Rack, node: Node) -> NodeDoor:
    facts = DoorFacts(host_facts.read(host, "serving")).whole()
    return NodeDoor(rack, facts, survey.run_secrets(host.state, rack), door.declared(rack, node.name))


@operation_on_host(_read)
def install_door(here: NodeDoor) -> Changeset:
    """Install nginx and write what differs of the door, then have it reload; requests that run go on. Remove the door
    where rack.yaml has none.
    """
    if here.door is None:
        return _remove(here.facts)
    private = [_keys(here, here.door), *_certificate(here, here.door)]
    return _changes(here, here.door, private)


def _keys(here: NodeDoor, declared: ServingDoor) -> PrivateFile:
    clients = {name: here.secrets.resolve(ref) for name, ref in declared.keys.items()}
    units = served_units(here.rack).values()
    keys = {unit.name: here.secrets.resolve(unit.api.key) for unit in units if unit.api.key}
    return door.keys_file(here.rack, declared, clients, keys)


def _certificate(here: NodeDoor, declared: ServingDoor) -> Iterator[PrivateFile]:
    """The certificate, unless a self-signed one is there that may stay."""
    if declared.certificate:
        key = here.secrets.resolve(declared.certificate.key)
        yield door.certificate_file(door_certificate.declared_pem(here.rack, declared.certificate, key))
        return
    address = door.address(here.rack, declared)
    state = here.facts.files.get(door.CERTIFICATE)
    fault = door_certificate.self_signed_fault(here.facts.certificate, declared, address)
    if fault or state is None or state.permissions != "600 root:root":
        yield door.certificate_file(door_certificate.self_signed_pem(declared, address))


def _changes(here: NodeDoor, declared: ServingDoor, private: list[PrivateFile]) -> Changeset:
    facts, made = here.facts, door.files(here.rack, declared)
    files = managed_file.differing(made, facts.files)
    secret = [file for file in private if facts.files.get(file.path) != survey.private_state(file)]
    folder = facts.folder != _FOLDER_STATE
    installing = not facts.nginx or door.INSTALLING in facts.files
    pending = door.PENDING in facts.files
    events = [*(acted(Action.INSTALL, door.PACKAGE) if installing else ())]
    if folder:
        events += file_acted(Action.PERMISSIONS if facts.folder else Action.WRITE, f"{door.FOLDER}/")
    events += managed_file.changes(files, facts.files)
    for file in secret:
        there = file.path in facts.files
        # Never its content, nor a hash of it.
        events += file_acted(Action.REWRITE if there else Action.WRITE, file.path, detail="differs" if there else None)
    events += acted(Action.ENABLE, door.SERVICE) if not facts.enabled else ()
    changed = bool(files or secret or pending or installing)
    if changed or not facts.running:
        detail = "an earlier run was not finished" if pending and not files and not secret else None
        events.append(Event(EventKind.RESTART, subject=door.SERVICE, action=_action(facts, files), detail=detail))
    warnings = tuple(_closed(here))
    if not events:
        return Changeset(warnings=warnings, in_sync_reason="the door is as declared")
    return Changeset(
        warnings=warnings,
        events=tuple(events),
        commands=tuple(_commands(facts, files, secret, installing, folder, changed)),
    )


def _action(facts: DoorFacts, files: list[ManagedFile]) -> Action:
    if not facts.running:
        return Action.START
    return Action.RESTART if any(file.path == door.SERVICE_FILE for file in files) else Action.RELOAD


def _commands(
    facts: DoorFacts, files: list[ManagedFile], secret: list[PrivateFile], installing: bool, folder: bool, changed: bool
) -> Iterator[StringCommand]:
    if folder or installing:
        yield sudo_script(
            f"umask 022; install -d -m 755 {door.PROGRAM.rpartition('/')[0]}; "
            f"install -d -m 700 -o root -g root {door.FOLDER}"
        )
    if installing:
        yield _install()
    if changed:
        yield sudo_script(f"umask 077; : > {door.PENDING}")
    # nginx judges its configuration together with the keys and the certificate.
    for file in secret:
        yield remote_files.put(file.path, file.content.get_secret_value(), mode=file.mode)
    yield from map(remote_files.put_managed, files)
    steps = ["systemctl daemon-reload"] if any(file.path == door.SERVICE_FILE for file in files) else []
    steps += [f"systemctl --no-reload enable --quiet {door.SERVICE}"] if not facts.enabled else []
    if changed or not facts.running:
        verb = "restart" if _action(facts, files) is Action.RESTART else "reload-or-restart"
        steps += [f"systemctl {verb} {door.SERVICE}", f"rm -f {door.PENDING}"]
    if steps:
        yield sudo_script("; ".join(steps))


def _install() -> StringCommand:
    """Return the command that installs nginx without the server that its package starts at port 80.

    An nginx that was there before is left as it is: its own service has nothing to do with the door.
    """
    install = apt.install_script(door.PACKAGE, downgrade=False, held=False)
    return sudo_script(
        f"[ -x {door.NGINX} ] || : > {door.INSTALLING}; [ -e {door.INSTALLING} ] || exit 0; "
        # Until the next boot at most; the package does not start what is masked.
        f"systemctl --runtime mask --quiet nginx.service\n{install}\n"
        f"systemctl --runtime unmask --quiet nginx.service; systemctl disable --quiet nginx.service; "
        f"rm -f {door.INSTALLING}"
    )


def _closed(here: NodeDoor) -> Iterator[Event]:
    """A unit that stays closed: an earlier `serve stop` was interrupted, or it was closed by hand."""
    for name in here.facts.closed:
        detail = f"closed at the door; `{door.PROGRAM} open {name}` there opens it"
        yield Event(EventKind.BROKEN, subject=f"unit {name}", detail=detail)


def _remove(facts: DoorFacts) -> Changeset:
    paths = list(facts.files)
    if not paths and not facts.enabled and not facts.running:
        return Changeset(in_sync_reason="the door is not on this node")
    # `systemctl disable` fails when the unit was removed and its link was left.
    there = f"[ ! -e {door.SERVICE_FILE} ] || systemctl stop {door.SERVICE}"
    removal = f"{there}; rm -f {quote(_WANTS, *paths)}; systemctl daemon-reload; rm -rf {door.RUN} {door.CACHE}"
    return Changeset(
        events=acted(Action.STOP_AND_REMOVE, "door", detail="rack.yaml has none on this node"),
        commands=(sudo_script(f"{removal}; [ ! -d {door.FOLDER} ] || rmdir {door.FOLDER}"),),
    )
