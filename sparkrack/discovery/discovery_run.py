"""Sequence of `init` and `adopt`: choose the hosts, verify their identity, and collect their reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import SecretStr, ValidationError

from core.model import Access, SecretError, SecretRef, defaults
from core.model.error_messages import problems
from core.model.errors import format_path, printable_line
from core.model.fields import PLAIN_API_PORT, SSH_PORT, TLS_API_PORT
from core.routeros.errors import SwitchError, UnreadableError
from core.ssh.fingerprint_file import read_fingerprints
from core.ssh.host_keys import HostKey, HostKeyError, pin, pinned
from core.util import regular_file
from core.util.command_error import CommandError
from core.util.progress import ProgressObserver
from core.util.screen import Screen
from sparkrack.discovery import collect, neighbours, rack_questions
from sparkrack.discovery.advertisements import Advertised
from sparkrack.discovery.collect import Endpoint, NodeShell
from sparkrack.discovery.describe import NO_CERTIFICATE, FoundNode, FoundRack, FoundSwitch
from sparkrack.discovery.discovery_options import DiscoveryOptions, host_fault
from sparkrack.discovery.host_trust import HostIdentityError, verify_host_key
from sparkrack.discovery.node_facts import NodeFacts
from sparkrack.discovery.password_reading import RefusingNode, may_take_password, open_password_shells
from sparkrack.discovery.switch_facts import SwitchFacts
from switch.bootstrap.first_contact import answers, offered_services
from switch.bootstrap.menus import FACTORY_ADDRESS, FACTORY_USER

USER, KEY = "ops", "~/.ssh/id_ed25519"
_SPARK = ("spark", "gx10", "pgx")
"""How the host names of a GB10 begin that its maker gave it."""
_NO_TERMINAL = "there is no terminal for a prompt"

Pins = dict[str, tuple[HostKey, ...]]
"""The keys that are to be pinned, by the address of the node."""


class Discovery:
    """Facts found about one rack. `show_progress`: shows the progress of the block. `strict`: a host that does not
    answer is an error, not a gap.
    """

    def __init__(
        self,
        options: DiscoveryOptions,
        screen: Screen,
        show_progress: Callable[[], AbstractContextManager[ProgressObserver]],
        *,
        strict: bool,
    ) -> None:
        self.options, self.strict = options, strict
        self._screen, self._show_progress = screen, show_progress
        self.pins: Pins = {}
        self._confirmed: dict[tuple[HostKey, ...], str] = {}
        self.facts: dict[str, NodeFacts] = {}
        self.switches: dict[str, SwitchFacts] = {}
        self.file = options.out.absolute().parent / Path(options.known_hosts).expanduser()

    def run(self) -> FoundRack:
        """Collect from all hosts. Raises CommandError; nothing is written."""
        addresses = dict(self.options.nodes) or self._choose_nodes()
        at = dict(self.options.switch) or self._choose_switch()
        own = defaults.local_user()
        user = self.options.user or self._ask_value(
            "user that the nodes accept", own if self._screen.interactive and defaults.is_login(own) else USER
        )
        key = self.options.key or self._ask_value(
            "key that they accept", defaults.first_key() if self._screen.interactive else KEY
        )
        access: dict[str, Any] = {"user": user, "key": key, "known_hosts": self.options.known_hosts}
        if self.options.ssh_port != SSH_PORT:
            access |= {"port": self.options.ssh_port}
        unread_reasons = self._verify_hosts(addresses)
        machines = self._read_nodes(addresses, access, unread_reasons)
        boxes = {name: self._find_switch(name, host) for name, host in at.items()}
        folder = defaults.folder_name(self.options.out.absolute().parent)
        implied = {"rack"} if folder and self.options.name in (None, folder) else set()
        if defaults.is_login(user) and user == own:
            implied.add("user")
        if key == defaults.first_key():
            implied.add("key")
        if self.options.known_hosts == defaults.KNOWN_HOSTS:
            implied.add("known_hosts")
        return FoundRack(self.options.name or folder or "rack", access, machines, boxes, frozenset(implied))

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _choose_nodes(self) -> dict[str, str]:
        self._warn_operator(f"looking for nodes for {neighbours.LISTEN_SECONDS:g} s")
        found, why = neighbours.nodes()
        for one in found:
            self._warn_operator(f"neighbour: {one.name} {one.address}")
        if why:
            self._warn_operator(why)
        if not self._screen.interactive:
            near = ", ".join(f"--node {one.name}={one.address}" for one in found)
            raise CommandError(f"no node is named: {near or 'pass --node NAME=ADDRESS'}; {_NO_TERMINAL}")
        chosen = {
            one.name: one.address
            for one in found
            if self._screen.confirm(
                f"is {one.name} ({one.address}) a node of this rack?", default=one.name.lower().startswith(_SPARK)
            )
        }
        return rack_questions.ask_nodes(self._screen, chosen)

    def _verify_hosts(self, addresses: Mapping[str, str]) -> dict[str, str]:
        """Verify the identity of each host; return the reason for those without a host key."""
        unread_reasons = {}
        try:
            vouched = read_fingerprints(self.options.host_keys) if self.options.host_keys else None
            for name, address in addresses.items():
                met = verify_host_key(name, address, self.options.ssh_port, self.file, vouched, self._confirm_keys)
                if met.why:
                    unread_reasons[name] = met.why
                elif met.fresh:
                    self.pins[address] = met.fresh
        except (HostIdentityError, HostKeyError) as fault:
            raise CommandError(f"{fault}; nothing was written") from None
        return unread_reasons

    def _read_nodes(
        self, addresses: Mapping[str, str], access: Mapping[str, Any], unread_reasons: Mapping[str, str]
    ) -> Any:
        with TemporaryDirectory(prefix="sparkrack-") as folder:
            known = Path(folder) / "known_hosts"
            try:
                known.write_bytes(regular_file.read_bytes(self.file) if self.file.exists() else b"")
            except OSError as fault:
                raise CommandError(f"{self.file} cannot be read: {fault.strerror}") from None
            for address, keys in self.pins.items():
                pin(known, address, self.options.ssh_port, keys)
            try:
                settings = Access.model_validate(
                    {**access, "known_hosts": str(known)}, context={"folder": self.options.out.absolute().parent}
                )
            except ValidationError as error:
                wrong = next(problems(error, Access, {}))
                where = f"access.{format_path(wrong.path)}"
                raise CommandError(f"{where}: {wrong.what}; {wrong.right}; nothing was written") from None
            asked = {name: host for name, host in addresses.items() if name not in unread_reasons}
            with collect.key_shells(settings, asked) as shells:
                answers = self._ask_nodes(asked, shells, known, str(access["user"]))
        found = {}
        for name, address in addresses.items():
            facts = answers.get(name, unread_reasons.get(name, ""))
            why = "" if isinstance(facts, NodeFacts) else printable_line(facts)
            if isinstance(facts, NodeFacts):
                self.facts[name] = facts
            else:
                self._report_unread(name, why)
            vendor, ports = self.options.vendors.get(name), self.options.cables.get(name, {})
            found[name] = FoundNode(address, self.facts.get(name), why, vendor, ports)
        return found

    def _ask_nodes(
        self, addresses: Mapping[str, str], shells: Mapping[str, NodeShell], known: Path, user: str
    ) -> Mapping[str, NodeFacts | str]:
        """Return the facts of each node, or why there are none. On a terminal `init` asks for a password for those
        that refuse the key. `known`: has the host keys that were confirmed."""
        with self._show_progress() as progress:
            answers = collect.read_nodes(shells, progress)
            refusing = {
                name: RefusingNode(addresses[name], pinned(known, addresses[name], self.options.ssh_port))
                for name, why in answers.items()
                if isinstance(why, str) and may_take_password(why)
            }
            if self.strict or not refusing or not self._screen.interactive:
                return collect.read_neighbours(answers, shells, progress)
        with open_password_shells(self._screen, refusing, self.options.ssh_port, user) as by_password:
            answers |= by_password.unread_reasons
            with self._show_progress() as progress:
                answers |= collect.read_nodes(by_password.shells, progress)
                return collect.read_neighbours(answers, {**shells, **by_password.shells}, progress)

    # --- switch ------------------------------------------------------------------------------------------------------

    def _choose_switch(self) -> dict[str, str]:
        if self.options.alone or not self._screen.interactive:
            return {}
        self._warn_operator(f"looking for switches for {neighbours.LISTEN_SECONDS:g} s")
        found: tuple[Advertised, ...] = neighbours.switches()
        for one in found:
            self._warn_operator(f"neighbour: {one.name} {one.address} {one.what}")
        text = self._ask_value("address of the switch; - for none", found[0].address if found else "-")
        if text != "-" and (why := host_fault(self.options.model.name, text)):
            raise CommandError(f"{why}; nothing was written")
        return {} if text == "-" else {self.options.model.name: text}

    def _find_switch(self, name: str, host: str) -> FoundSwitch:
        options = self.options
        port = options.api_port or (PLAIN_API_PORT if options.plain else TLS_API_PORT)
        kept = (
            _format_secret_reference(options.password, options.out)
            if options.password
            else {"env": _password_variable(name)}
        )
        tls, why = (None, "") if options.plain else self._confirm_certificate(name, host, port)
        facts: SwitchFacts | None = None
        if not why:
            try:
                facts = self._read_switch(name, Endpoint(host, port, tls, options.switch_user))
            except (SwitchError, UnreadableError, SecretError) as fault:
                why = printable_line(str(fault))
        if facts:
            self.switches[name] = facts
        else:
            self._report_unread(name, why)
            self._warn_operator(
                f"{name}: model {options.model.board} is written, since it was not read; --switch-model names another"
            )
        user = options.switch_user
        if not self.strict and (options.plain or user == FACTORY_USER):
            # In factory state: the file declares what bootstrap will create.
            port, tls, user = TLS_API_PORT, NO_CERTIFICATE, "sparkrack" if user == FACTORY_USER else user
            kept = {"env": _password_variable(name)} if user == "sparkrack" else kept
        return FoundSwitch(host, port, tls, user, kept, facts, why, options.cages, options.model)

    def _confirm_certificate(self, name: str, host: str, port: int) -> tuple[str, str]:
        """The fingerprint of the switch's certificate, and why it cannot be logged in to, if so."""
        found = offered_services(host, port)
        if found is None and not answers(host, port):
            where = f"; a new one is at {FACTORY_ADDRESS}, where sparkrack bootstrap switch finds it"
            return NO_CERTIFICATE, f"nothing answers at {host}:{port}{where}"
        if found is None:
            return NO_CERTIFICATE, f"no TLS at {host}:{port}; with --plain the password would go in the clear"
        if self.options.fingerprint:
            if found != self.options.fingerprint:
                raise CommandError(f"{name} shows certificate {found}, not the one of --fingerprint")
            return found, ""
        if not self._screen.interactive:
            if self.strict or self.options.password:
                raise CommandError(
                    f"{name} shows certificate {found}; pass it as --fingerprint once you have verified it; "
                    f"{_NO_TERMINAL}"
                )
            return NO_CERTIFICATE, f"it shows certificate {found}, which was not confirmed"
        self._warn_operator(f"{name} shows certificate {found}; /certificate/print on its console shows it, too")
        return (
            (found, "")
            if self._screen.confirm("is this the certificate?")
            else (NO_CERTIFICATE, "its certificate was not confirmed")
        )

    def _read_switch(self, name: str, way: Endpoint) -> SwitchFacts:
        halves = [half for facts in self.facts.values() for half in facts.halves.values()]
        expected = {half.mac: half.up for half in halves if half.mac}
        password = self._ask_switch_password(name)
        with self._show_progress() as progress:
            progress.phase("read the switch", [name])
            return collect.switch(name, way, password, expected)

    def _ask_switch_password(self, name: str) -> SecretStr:
        if self.options.password:
            return self.options.password.resolve()
        if not self._screen.interactive:
            raise SecretError(f"no password; pass --switch-password-env or --switch-password-file: {_NO_TERMINAL}")
        return self._screen.hidden_prompt(f"{name}: password of {self.options.switch_user}")

    def _report_unread(self, name: str, why: str) -> None:
        if self.strict:
            raise CommandError(f"{name}: {why}; nothing was written")
        self._warn_operator(f"{name}: not read: {why}")

    # --- questions ---------------------------------------------------------------------------------------------------

    def _warn_operator(self, text: str) -> None:
        self._screen.warn(printable_line(text))

    def _ask_value(self, what: str, default: str) -> str:
        """Ask for a value; the default without a terminal."""
        return self._screen.ask(what, default) if self._screen.interactive else default

    def _confirm_keys(self, name: str, keys: tuple[HostKey, ...]) -> bool:
        if not self._screen.interactive:
            first = f"{keys[0].kind} {keys[0].fingerprint}"
            raise HostIdentityError(
                f"{name}: shows {first}, which is not pinned; pass --host-keys FILE: {_NO_TERMINAL}"
            )
        for key in keys:
            self._warn_operator(f"{name}: {key.kind} {key.fingerprint}")
        twin = self._confirmed.setdefault(keys, name)
        if twin != name:
            self._warn_operator(f"{name}: the same keys as {twin}; sparkrack bootstrap makes each node its own")
        return self._screen.confirm(f"are these the host keys of {name}, as its console shows them?")


def _password_variable(switch: str) -> str:
    """The environment variable for the password of a switch: CRS812_PASSWORD of crs812, CRS_1_PASSWORD of crs-1."""
    words = re.sub(r"[^A-Z0-9]", "_", switch.upper())
    return f"{'_' if words[0].isdigit() else ''}{words}_PASSWORD"


def _format_secret_reference(password: SecretRef, out: Path) -> dict[str, Any]:
    """A reference as the file writes it: a file from the file's own folder on, where it is below that."""
    if password.file is None:
        return {"env": password.env}
    folder = out.absolute().parent
    inside = password.file.is_relative_to(folder)
    return {"file": str(password.file.relative_to(folder) if inside else password.file)}
