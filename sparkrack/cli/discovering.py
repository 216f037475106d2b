"""How `init` and `adopt` get to know a rack: whom to ask, whether they are who is meant, and what they say."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from pydantic import SecretStr, ValidationError

from sparkrack.cli.hidden import hidden
from sparkrack.cli.wishes import Wishes, machine
from sparkrack.discovery import listen, meeting
from sparkrack.discovery.describe import NO_CERTIFICATE, Box, Found, Machine
from sparkrack.discovery.meeting import Way
from sparkrack.discovery.near import Near
from sparkrack.discovery.node import NodeFacts
from sparkrack.discovery.switch import SwitchFacts
from sparkrack.discovery.trust import StrangerError, meet
from sparkrack.fleet import Access, SecretError, SecretRef, regular
from sparkrack.fleet.errors import dotted, one_line
from sparkrack.fleet.wording import problems
from sparkrack.hostkeys import HostKey, HostKeyError, pin
from sparkrack.vouchers import vouchers
from switch.bootstrap.contact import shown
from switch.bootstrap.tables import FACTORY_USER
from switch.errors import SwitchError, UnreadableError

USER, KEY = "ops", "~/.ssh/id_ed25519"
TLS_PORT, PLAIN_PORT = 8729, 8728
_NO_TERMINAL = "there is no terminal to ask on"

Pins = dict[str, tuple[HostKey, ...]]
"""The keys that are to be pinned, by the address of the node."""


class Discovery:
    """What is found of one rack. `strict`: a machine that does not answer is an error, not a gap."""

    def __init__(self, wishes: Wishes, *, strict: bool) -> None:
        self.wishes, self.strict = wishes, strict
        self.pins: Pins = {}
        self.facts: dict[str, NodeFacts] = {}
        self.switches: dict[str, SwitchFacts] = {}
        self.file = wishes.out.absolute().parent / Path(wishes.known_hosts).expanduser()

    def run(self) -> Found:
        """Ask everybody. Raises ClickException; nothing is written."""
        addresses = dict(self.wishes.nodes) or self._near()
        at = dict(self.wishes.switch) or self._switch_near()
        user = self.wishes.user or _asked("user that the nodes let in", USER)
        key = self.wishes.key or _asked("key that they let in", KEY)
        access: dict[str, Any] = {"user": user, "key": key, "known_hosts": self.wishes.known_hosts}
        if self.wishes.ssh_port != 22:
            access |= {"port": self.wishes.ssh_port}
        silent = self._meet(addresses)
        machines = self._nodes(addresses, access, silent)
        return Found(self.wishes.name, access, machines, {name: self._box(name, host) for name, host in at.items()})

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _near(self) -> dict[str, str]:
        found, why = listen.nodes()
        for one in found:
            say(f"near: {one.name} {one.address}")
        if why:
            say(why)
        if not sys.stdin.isatty():
            near = ", ".join(f"--node {one.name}={one.address}" for one in found)
            raise click.ClickException(f"no node is named: {near or 'say --node NAME=ADDRESS'}; {_NO_TERMINAL}")
        chosen = {one.name: one.address for one in found if _yes(f"is {one.name} ({one.address}) a node of this rack?")}
        while not chosen:
            text = _asked("a node, as NAME=ADDRESS", "spark1=10.77.0.11")
            name, _, address = text.partition("=")
            try:
                machine(name, address)
            except click.UsageError as fault:
                say(fault.message)
            else:
                chosen[name] = address
        return chosen

    def _meet(self, addresses: Mapping[str, str]) -> dict[str, str]:
        """Whether each is who is meant; gives why, for those that show nothing."""
        silent = {}
        try:
            vouched = vouchers(self.wishes.host_keys) if self.wishes.host_keys else None
            for name, address in addresses.items():
                met = meet(name, address, self.wishes.ssh_port, self.file, vouched, _confirmed)
                if met.why:
                    silent[name] = met.why
                elif met.fresh:
                    self.pins[address] = met.fresh
        except (StrangerError, HostKeyError) as fault:
            raise click.ClickException(f"{fault}; nothing was written") from None
        return silent

    def _nodes(self, addresses: Mapping[str, str], access: Mapping[str, Any], silent: Mapping[str, str]) -> Any:
        with TemporaryDirectory(prefix="sparkrack-") as folder:
            known = Path(folder) / "known_hosts"
            try:
                known.write_bytes(regular.read_bytes(self.file) if self.file.exists() else b"")
            except OSError as fault:
                raise click.ClickException(f"{self.file} cannot be read: {fault.strerror}") from None
            for address, keys in self.pins.items():
                pin(known, address, self.wishes.ssh_port, keys)
            try:
                settings = Access.model_validate(
                    {**access, "known_hosts": str(known)}, context={"folder": self.wishes.out.absolute().parent}
                )
            except ValidationError as error:
                wrong = next(problems(error, Access, {}))
                where = f"access.{dotted(wrong.path)}"
                raise click.ClickException(f"{where}: {wrong.what}; {wrong.right}; nothing was written") from None
            said = meeting.nodes(settings, {name: host for name, host in addresses.items() if name not in silent})
        found = {}
        for name, address in addresses.items():
            facts = said.get(name, silent.get(name, ""))
            why = "" if isinstance(facts, NodeFacts) else one_line(facts)
            if isinstance(facts, NodeFacts):
                self.facts[name] = facts
            else:
                self._silent(name, why)
            vendor, ports = self.wishes.vendors.get(name), self.wishes.cables.get(name, {})
            found[name] = Machine(address, self.facts.get(name), why, vendor, ports)
        return found

    # --- switch ------------------------------------------------------------------------------------------------------

    def _switch_near(self) -> dict[str, str]:
        if self.wishes.alone or not sys.stdin.isatty():
            return {}
        say(f"looking for switches for {listen.SECONDS:g} s")
        found: tuple[Near, ...] = listen.switches()
        for one in found:
            say(f"near: {one.name} {one.address} {one.what}")
        text = _asked("address of the switch; - for none", found[0].address if found else "-")
        if text != "-":
            machine("crs812", text)
        return {} if text == "-" else {"crs812": text}

    def _box(self, name: str, host: str) -> Box:
        wishes = self.wishes
        port = wishes.api_port or (PLAIN_PORT if wishes.plain else TLS_PORT)
        kept = _written(wishes.password, wishes.out) if wishes.password else {"env": _variable(name)}
        tls, why = (None, "") if wishes.plain else self._certificate(name, host, port)
        facts: SwitchFacts | None = None
        if not why:
            try:
                facts = self._read(name, Way(host, port, tls, wishes.switch_user))
            except (SwitchError, UnreadableError, SecretError) as fault:
                why = one_line(str(fault))
        if facts:
            self.switches[name] = facts
        else:
            self._silent(name, why)
        user = wishes.switch_user
        if not self.strict and (wishes.plain or user == FACTORY_USER):
            # As it comes from its box: what bootstrap makes is what the file says.
            port, tls, user = TLS_PORT, NO_CERTIFICATE, "sparkrack" if user == FACTORY_USER else user
            kept = {"env": _variable(name)} if user == "sparkrack" else kept
        return Box(host, port, tls, user, kept, facts, why, wishes.cages)

    def _certificate(self, name: str, host: str, port: int) -> tuple[str, str]:
        """The fingerprint of the switch's certificate, and why it cannot be logged in to, if so."""
        found = shown(host, port)
        if found is None:
            return NO_CERTIFICATE, f"no TLS at {host}:{port}; with --plain the password would go in the clear"
        if self.wishes.fingerprint:
            if found != self.wishes.fingerprint:
                raise click.ClickException(f"{name} shows certificate {found}, not the one of --fingerprint")
            return found, ""
        if not sys.stdin.isatty():
            if self.strict or self.wishes.password:
                raise click.ClickException(
                    f"{name} shows certificate {found}; say --fingerprint with it once you know that it is its own; "
                    f"{_NO_TERMINAL}"
                )
            return NO_CERTIFICATE, f"it shows certificate {found}, which nobody confirmed"
        say(f"{name} shows certificate {found}; /certificate/print on its console shows it, too")
        return (found, "") if _yes("is it that?") else (NO_CERTIFICATE, "its certificate was not confirmed")

    def _read(self, name: str, way: Way) -> SwitchFacts:
        halves = [half for facts in self.facts.values() for half in facts.halves.values()]
        expected = {half.mac: half.up for half in halves if half.mac}
        return meeting.switch(name, way, self._password(name), expected)

    def _password(self, name: str) -> SecretStr:
        if self.wishes.password:
            return self.wishes.password.resolve()
        if not sys.stdin.isatty():
            raise SecretError(f"no password; say --switch-password-env or --switch-password-file: {_NO_TERMINAL}")
        return hidden(f"{name}: password of {self.wishes.switch_user}")

    def _silent(self, name: str, why: str) -> None:
        if self.strict:
            raise click.ClickException(f"{name}: {why}; nothing was written")
        say(f"{name}: not read: {why}")


def say(text: str) -> None:
    """What goes on beside the result."""
    click.echo(one_line(text), err=True)


def _asked(what: str, default: str) -> str:
    """What a person says; the default where there is nobody."""
    return str(click.prompt(what, default=default, err=True)) if sys.stdin.isatty() else default


def _yes(question: str) -> bool:
    return click.confirm(question, err=True)


def _confirmed(name: str, keys: tuple[HostKey, ...]) -> bool:
    if not sys.stdin.isatty():
        first = f"{keys[0].kind} {keys[0].fingerprint}"
        raise StrangerError(f"{name}: shows {first}, which is not pinned; say --host-keys FILE: {_NO_TERMINAL}")
    for key in keys:
        say(f"{name}: {key.kind} {key.fingerprint}")
    return _yes(f"are these the host keys of {name}, as its console shows them?")


def _variable(switch: str) -> str:
    """The environment variable for the password of a switch: CRS812_PASSWORD of crs812, CRS_1_PASSWORD of crs-1."""
    words = re.sub(r"[^A-Z0-9]", "_", switch.upper())
    return f"{'_' if words[0].isdigit() else ''}{words}_PASSWORD"


def _written(password: SecretRef, out: Path) -> dict[str, Any]:
    """A reference as the file writes it: a file from the file's own folder on, where it is below that."""
    if password.file is None:
        return {"env": password.env}
    folder = out.absolute().parent
    inside = password.file.is_relative_to(folder)
    return {"file": str(password.file.relative_to(folder) if inside else password.file)}
