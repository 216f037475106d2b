"""Bring the exporter of a node, and Prometheus and Alertmanager of the server, to their declared state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from posixpath import dirname

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.model.secrets import SecretRef
from core.ops import apt, host_facts, remote_files
from core.ops.announce import managed_file_change
from core.ops.operation import Changeset, managed_operation, operation_on_host
from core.ops.shared_survey import SharedSurvey
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, EventKind, acted, file_acted
from core.util.managed_file import FileState, ManagedFile
from roles.watch import ROLE, desired, notifications, rules, scrape
from roles.watch.facts import WatchFacts
from roles.watch.node_metrics_apply import export_node_metrics
from roles.watch.options import WatchOptions
from roles.watch.switch_reader_apply import run_switch_reader

_secrets: SharedSurvey[dict[SecretRef, str]] = SharedSurvey()


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
    service = _Service(facts, desired.EXPORTER, desired.exporter_dropin(facts.rack, facts.node))
    return service.changeset("the metrics of the node are exported")


@managed_operation("watch", WatchFacts)
def run_prometheus(facts: WatchFacts) -> Changeset:
    """Run Prometheus with the rules for this rack; stop it on a node that is no longer the server.

    It reads a new configuration while it runs; new arguments restart it.
    """
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if not facts.serves:
        return _gone(facts, desired.PROMETHEUS)
    # The check of the configuration reads the rules.
    files = [rules.rule_file(facts.rack), scrape.prometheus_file(facts.rack)]
    service = _Service(facts, desired.PROMETHEUS, desired.prometheus_dropin(facts.rack), tuple(facts.stale(files)))
    return service.changeset("metrics are collected, and alerts evaluated")


@dataclass(frozen=True)
class ServerFacts:
    """Facts of a node, and the configuration of Alertmanager with its secrets; None where this node is not the
    server."""

    facts: WatchFacts
    wanted: bytes | None

    @property
    def state(self) -> FileState:
        """The desired state of the configuration."""
        digest = hashlib.sha256(self.wanted or b"").hexdigest()
        return FileState(f"{notifications.MODE} root:{desired.GROUP}", digest)


def _read(host: Host, rack: Rack, node: Node) -> ServerFacts:
    facts = WatchFacts(host_facts.read(host, "watch"), rack, node)
    if not facts.serves:
        return ServerFacts(facts, None)
    values = _secrets.get(host.state, lambda: notifications.secret_values(rack))
    return ServerFacts(facts, notifications.alertmanager_text(rack, values))


@operation_on_host(_read)
def run_alertmanager(here: ServerFacts) -> Changeset:
    """Run Alertmanager with the declared receivers; stop it on a node that is no longer the server."""
    facts = here.facts
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if here.wanted is None:
        return _gone(facts, desired.ALERTMANAGER)
    secret = here.wanted if facts.notifications != here.state else None
    service = _Service(facts, desired.ALERTMANAGER, desired.alertmanager_dropin(facts.rack), secret=secret)
    return service.changeset("alerts are sent")


@dataclass(frozen=True)
class _Service:
    """What one of the three programs needs: its drop-in, its files that differ, and its file that holds secrets."""

    facts: WatchFacts
    package: str
    dropin: ManagedFile
    files: tuple[ManagedFile, ...] = ()
    secret: bytes | None = None

    def changeset(self, in_sync_reason: str) -> Changeset:
        state, name = self.facts.packages[self.package], desired.unit(self.package)
        now = state.unit
        arguments = self.facts.stale([self.dropin])
        # What a run that was interrupted had written is not known here: it may have been new arguments.
        restart = bool(arguments) or now.reload or state.pending or not now.settled
        renew = restart or bool(self.files) or self.secret is not None
        if state.installed and now.enabled and not renew:
            return Changeset(in_sync_reason=in_sync_reason)
        events = [managed_file_change(file, self.facts.before(file.path)) for file in arguments]
        events += acted(Action.INSTALL, self.package) if not state.installed else ()
        events += [managed_file_change(file, self.facts.before(file.path)) for file in self.files]
        if self.secret is not None:
            # Never its content, nor a hash of it.
            there = self.facts.notifications is not None
            events += file_acted(Action.REWRITE if there else Action.WRITE, desired.NOTIFICATIONS)
        events += acted(Action.UNMASK, name) if now.masked else ()
        events += acted(Action.ENABLE, name) if not now.enabled else ()
        if renew:
            action = Action.START if not now.running else Action.RESTART if restart else Action.RELOAD
            unread = state.pending and not (arguments or self.files or self.secret)
            why = "it has not read its files" if unread else None
            events.append(Event(EventKind.RESTART, subject=name, action=action, detail=why))
        return Changeset(events=tuple(events), commands=tuple(self._commands(state, arguments, restart, renew)))

    def _commands(
        self, state: desired.PackageState, arguments: list[ManagedFile], restart: bool, renew: bool
    ) -> Iterable[StringCommand]:
        name, mark, now = desired.unit(self.package), _mark(self.package), state.unit
        if renew:
            yield sudo_script(f"umask 077; mkdir -p {desired.MARKS}; : > {mark}")
        # Before the package, which starts its unit: without the drop-in it would listen on all addresses.
        for file in arguments:
            yield sudo_script(f"umask 022; mkdir -p {quote(dirname(file.path))}")
            yield remote_files.put_managed(file)
        if not state.installed:
            yield sudo_script("systemctl daemon-reload")
            yield apt.install(self.package)
        if self.package == desired.PROMETHEUS and (self.files or not state.installed):
            yield _install_promtool()
        for file in self.files:
            yield remote_files.put_managed(file)
        if self.secret is not None:
            yield remote_files.put(
                desired.NOTIFICATIONS,
                self.secret,
                mode=notifications.MODE,
                check=notifications.CHECK,
                group=desired.GROUP,
            )
        steps = ["systemctl daemon-reload"] if arguments or now.reload or not state.installed else []
        if now.masked:  # both: each removes the mask of one folder only
            steps += [f"systemctl unmask --quiet {name}", f"systemctl unmask --runtime --quiet {name}"]
        steps += [f"systemctl enable --quiet {name}"] if not now.enabled else []
        if renew:
            # A program that ended since it was looked at cannot be reloaded.
            again = f"systemctl restart {name}" if restart else f"systemctl reload {name} || systemctl restart {name}"
            steps += [again, f"rm -f {mark}"]
        if steps:
            yield sudo_script("; ".join(steps))


def _install_promtool() -> StringCommand:
    """Return the command that installs promtool where it is a package of its own (Debian 13)."""
    install = apt.install_script("promtool", downgrade=False, held=False)
    return sudo_script(f"command -v promtool > /dev/null && exit 0\n{install}")


def _gone(facts: WatchFacts, package: str) -> Changeset:
    """Stop a program of a former server, and remove the files of ours; its package and its metrics stay.

    The last files go last, so that an interrupted run is completed by the next.
    """
    there, name = facts.there(package), desired.unit(package)
    if not there:
        return Changeset(in_sync_reason="this node is not the server")
    state = facts.packages[package]
    now = state.unit
    dropin, rest = desired.dropin(package), [path for path in there if path != desired.dropin(package)]
    steps = [f"systemctl stop {name}"] if now.running else []
    steps += [f"systemctl disable --quiet {name}"] if state.installed and not now.masked else []
    steps += [f"rm -f {dropin}", "systemctl daemon-reload", f"rm -f {quote(_mark(package), *rest)}"]
    why = (
        f"the server is {server.name if (server := desired.server(facts.rack)) else desired.server_address(facts.rack)}"
    )
    return Changeset(events=acted(Action.STOP_AND_REMOVE, name, detail=why), commands=(sudo_script("; ".join(steps)),))


def _mark(package: str) -> str:
    return f"{desired.MARKS}/watch-{package}.pending"
