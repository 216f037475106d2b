"""Bring the exporter of a node, and Prometheus and Alertmanager of the server, to their declared state."""

from __future__ import annotations

from dataclasses import replace

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.model.declared_secrets import secret_value
from core.model.secrets import SecretRef
from core.ops import apt, host_facts
from core.ops.managed_service import NO_CHANGES, ManagedService, ServiceChanges, secret_file
from core.ops.operation import Changeset, managed_operation, operation_on_host
from core.ops.shared_values import SharedValue
from core.ops.shell import sudo_script
from core.util.event import Action, acted
from roles.watch import ROLE, desired, node_metrics, notifications, rules, scrape, services, switch_reader
from roles.watch.facts import FactsAndSecret, WatchFacts
from roles.watch.options import WatchOptions

_READS_NONE = "this node reads no switch"
_passwords: SharedValue[dict[SecretRef, str]] = SharedValue()
_secrets: SharedValue[dict[SecretRef, str]] = SharedValue()


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Run the exporter, and on the server Prometheus, Alertmanager and what reads the switches; nothing without a
    declaration.
    """
    if rack.declared(WatchOptions) is None:
        return
    run_exporter(name="Export the metrics of the node", rack=rack, node=node)
    export_node_metrics(name="Export what the node knows of itself", rack=rack, node=node)
    run_prometheus(name="Collect metrics and evaluate alerts", rack=rack, node=node)
    run_alertmanager(name="Send alerts", rack=rack, node=node)
    run_switch_reader(name="Read the switches", rack=rack, node=node)


@managed_operation("watch", WatchFacts)
def run_exporter(facts: WatchFacts) -> Changeset:
    """Install the exporter, and have it listen on the management address."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    state = facts.state(services.EXPORTER, [desired.exporter_dropin(facts.rack, facts.node)])
    changes = services.EXPORTER.differences(state, install=_install_package(facts, desired.EXPORTER))
    return changes.changeset("the metrics of the node are exported")


@managed_operation("watch", WatchFacts)
def export_node_metrics(facts: WatchFacts) -> Changeset:
    """Have the node export what it knows of itself: boots, the black box, streams, measurements, models."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    changes = services.NODE_METRICS.differences(facts.state(services.NODE_METRICS, node_metrics.files(facts.rack)))
    return changes.changeset("the node exports what it knows of itself")


@managed_operation("watch", WatchFacts)
def run_prometheus(facts: WatchFacts) -> Changeset:
    """Run Prometheus with the rules for this rack; stop it on a node that is no longer the server.

    It reads a new configuration while it runs; new arguments restart it.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if not facts.serves:
        return _remove_service(facts, services.PROMETHEUS)
    # The check of the configuration reads the rules.
    files = (desired.prometheus_dropin(facts.rack), rules.rule_file(facts.rack), scrape.prometheus_file(facts.rack))
    state, install = facts.state(services.PROMETHEUS, files), _install_package(facts, desired.PROMETHEUS)
    if install.commands:
        install += ServiceChanges(commands=(_install_promtool(),))
    changes = services.PROMETHEUS.differences(state, install=install)
    if not install.commands and any(file.validate for file, _ in state.files):
        changes = replace(changes, commands=(_install_promtool(), *changes.commands))
    return changes.changeset("metrics are collected, and alerts evaluated")


def _read_facts(host: Host, rack: Rack, node: Node) -> FactsAndSecret:
    facts = WatchFacts(host_facts.read(host, "watch"), rack, node)
    if not facts.serves:
        return FactsAndSecret(facts, None)
    values = _secrets.get(host.state, lambda: notifications.secret_values(rack))
    return FactsAndSecret(facts, notifications.alertmanager_text(rack, values))


@operation_on_host(_read_facts)
def run_alertmanager(here: FactsAndSecret) -> Changeset:
    """Run Alertmanager with the declared receivers; stop it on a node that is no longer the server."""
    facts = here.facts
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if here.wanted is None:
        return _remove_service(facts, services.ALERTMANAGER)
    mode, check = notifications.MODE, notifications.CHECK
    secret = secret_file(
        desired.NOTIFICATIONS, here.wanted, facts.notifications, mode=mode, group=desired.GROUP, check=check
    )
    state = facts.state(services.ALERTMANAGER, [desired.alertmanager_dropin(facts.rack)])
    install = _install_package(facts, desired.ALERTMANAGER)
    return services.ALERTMANAGER.differences(state, install=install, also=secret).changeset("alerts are sent")


def _read_reader_facts(host: Host, rack: Rack, node: Node) -> FactsAndSecret:
    facts = WatchFacts(host_facts.read(host, "watch"), rack, node)
    if not (facts.serves and switch_reader.switches(rack)):
        return FactsAndSecret(facts, None)
    refs = switch_reader.secrets(rack)
    values = _passwords.get(host.state, lambda: {ref: secret_value(rack, ref) for ref in refs})
    return FactsAndSecret(facts, switch_reader.passwords_text(rack, values))


@operation_on_host(_read_reader_facts)
def run_switch_reader(here: FactsAndSecret) -> Changeset:
    """Write the program, its units and the passwords, have the timer run, and read the switches at once."""
    facts, service = here.facts, services.SWITCH_READER
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if here.wanted is None:
        return service.removal(facts.state(service), _READS_NONE).changeset(_READS_NONE)
    mode = switch_reader.PASSWORDS_MODE
    secret = secret_file(switch_reader.PASSWORDS, here.wanted, facts.passwords, mode=mode)
    changes = service.differences(facts.state(service, switch_reader.files(facts.rack)), also=secret)
    return changes.changeset("the switches are read every minute")


def _install_package(facts: WatchFacts, package: str) -> ServiceChanges:
    """Return what installs a package that is not there as a whole; without the drop-in, which systemd has to read
    first, its unit would listen on all addresses."""
    if package in facts.live.installed:
        return NO_CHANGES
    commands = (sudo_script("systemctl daemon-reload"), apt.install(package))
    return ServiceChanges(acted(Action.INSTALL, package), commands)


def _install_promtool() -> StringCommand:
    """Return the command that installs promtool where it is a package of its own (Debian 13)."""
    install = apt.install_script("promtool", downgrade=False, held=False)
    return sudo_script(f"command -v promtool > /dev/null && exit 0\n{install}")


def _remove_service(facts: WatchFacts, service: ManagedService) -> Changeset:
    """Stop a program of a former server, and remove the files of ours; its package and its metrics stay."""
    server = desired.server(facts.rack)
    why = f"the server is {server.name if server else desired.server_address(facts.rack)}"
    return service.removal(facts.state(service), why).changeset("this node is not the server")
