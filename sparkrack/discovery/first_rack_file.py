"""The rack file of `sparkrack init` and of `sparkrack adopt`: discovered, validated and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.model import Rack, SecretError, SecretRef
from core.model.errors import ConfigProblem
from core.util.command_error import CommandError
from core.util.progress import ProgressObserver
from core.util.screen import Screen
from sparkrack.discovery import rack_questions
from sparkrack.discovery.describe import FoundRack, FoundSwitch, describe, summary
from sparkrack.discovery.discovery_options import DiscoveryOptions
from sparkrack.discovery.discovery_run import Discovery
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.operator_subnets import operator_subnets, session_address
from sparkrack.discovery.pending_changes import changes
from sparkrack.discovery.switch_facts import www_ssl_port
from sparkrack.discovery.write_rack_file import validated_text, written
from sparkrack.discovery.yaml_writer import text
from switch.bootstrap.passwords import Password

ShowProgress = Callable[[], AbstractContextManager[ProgressObserver]]
"""Shows the progress of a block."""


@dataclass(frozen=True)
class WrittenRack:
    """A rack file that was written. `rack`: None when it is not valid. `faults`: why it is not. `changes`: the live
    values that a run would change."""

    sheet: RackDraft
    rack: Rack | None
    faults: Sequence[ConfigProblem]
    changes: Sequence[object] = ()

    @property
    def gaps(self) -> bool:
        """Whether the file must be edited before a run."""
        return bool(self.faults or self.sheet.missing)


def write_first(
    options: DiscoveryOptions, screen: Screen, show_progress: ShowProgress, *, reader: bool, management: bool
) -> WrittenRack:
    """Write the first rack file. `reader`, `management`: whether these sections of a switch are proposed. Raises
    CommandError when nothing was written.
    """
    discovery = Discovery(options, screen, show_progress, strict=False)
    found = discovery.run()
    sheet = describe(found, live=False)
    for facts in discovery.facts.values() if sheet.compact else ():
        screen.warn(summary(facts))
    if not found.boxes and screen.interactive:
        cables = rack_questions.ask_cables(screen, tuple(found.nodes), _list_cabled_nodes(sheet))
        sheet = describe(found.with_ports(cables), live=False)
    sheet.heads[()] = ["Written by sparkrack init; yours to edit. sparkrack check judges it without connecting."]
    passwords = []
    for name, box in found.boxes.items():
        if management:
            _propose_management(sheet, name, box, found, options, screen)
        if reader and _ask_with_default_yes(screen, f"declare a read-only user of {name} for verify?"):
            passwords.append(_propose_reader(sheet, name, box, options))
    if screen.interactive:
        sheet.data |= rack_questions.offer_sections(screen, tuple(found.nodes), discovery.facts)
    rack, faults = validated_text(text(sheet), options.out)
    prepare = partial(_make_passwords, passwords, screen)
    port, yes = options.ssh_port, options.yes
    written(sheet, options.out, discovery.pins, discovery.file, port, screen, yes=yes, prepare=prepare)
    return WrittenRack(sheet, rack, faults)


def write_adopted(options: DiscoveryOptions, screen: Screen, show_progress: ShowProgress) -> WrittenRack:
    """Write the rack file of a rack that was configured by hand. Raises CommandError when nothing was written."""
    discovery = Discovery(options, screen, show_progress, strict=True)
    sheet = describe(discovery.run(), live=True)
    sheet.heads[()] = ["Written by sparkrack adopt: this rack as it was found.", *sheet.heads.get((), [])]
    rack, faults = validated_text(text(sheet), options.out)
    found = changes(rack, discovery.facts, discovery.switches) if rack else ()
    written(sheet, options.out, discovery.pins, discovery.file, options.ssh_port, screen, yes=options.yes)
    return WrittenRack(sheet, rack, faults, found)


def _list_cabled_nodes(sheet: RackDraft) -> set[str]:
    """The nodes at which a cable ends, whichever end it is written at."""
    ports = {name: node.get("ports", {}) for name, node in sheet.data["nodes"].items()}
    ends = {end.partition("/")[0] for cables in ports.values() for end in cables.values()}
    return ends | {name for name, cables in ports.items() if cables}


def _propose_management(
    sheet: RackDraft, name: str, box: FoundSwitch, found: FoundRack, options: DiscoveryOptions, screen: Screen
) -> None:
    """Declare the subnets of this machine as those that may reach the switch, if the operator agrees."""
    session = session_address(box.facts, options.switch_user) if box.facts else None
    hosts = [box.address, *(node.address for node in found.nodes.values())]
    subnets, why = operator_subnets(hosts, session)
    if why:
        screen.warn(f"{name}: management is left out: {why}")
    elif _ask_with_default_yes(
        screen, f"limit the services of {name} to {', '.join(subnets)}, the subnet of this machine?"
    ):
        place = sheet.section("switches", name)
        place["management"] = subnets
        sheet.note(("switches", name, "management"), "what may reach the switch: the subnet of the operator")


def _propose_reader(sheet: RackDraft, name: str, box: FoundSwitch, options: DiscoveryOptions) -> Password:
    """Declare a read-only user. Return its password, whose file is beside the rack file."""
    file = f"{name}-reader.password"
    reader: dict[str, Any] = {"password": {"file": file}}
    if box.facts and (port := www_ssl_port(box.facts)):
        reader["port"] = port
    sheet.section("switches", name)["reader"] = reader
    sheet.note(("switches", name, "reader"), "verify reads the switch over REST as a user who cannot write")
    return Password(SecretRef(file=options.out.absolute().parent / file))


def _make_passwords(passwords: list[Password], screen: Screen) -> None:
    for password in passwords:
        try:
            if password.make():
                screen.warn(f"{password.ref.file}: written; it is readable by you only")
        except SecretError as fault:
            raise CommandError(f"{fault}; the rack file was not written") from None


def _ask_with_default_yes(screen: Screen, question: str) -> bool:
    """Ask on a terminal, where yes is the default; yes without one."""
    return not screen.interactive or screen.confirm(question, default=True)
