"""A switch that was brought to a declaration with every kind of row, and its verification."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.model import Rack, SecretRef, load
from core.routeros.api import ApiSession
from core.routeros.sentences import writes
from core.ssh.client import Machine
from core.verify.outcomes import Outcome
from core.verify.plugin import VerifyPlugin
from lab.routeros_emulator.config import CableTail, EmulatedCable
from switch.differences import SwitchDifference, switch_differences
from switch.target_state import DeclaredTarget
from switch.verify_client import SwitchChecks
from tests.emulator import reference
from tests.emulator.emulator_process import REPOSITORY, USER, Crs812Process, reference_cables, stop_all
from tests.unit.probe_output import probe_output

READER_PASSWORD = "canary-5tS8-reader"
LEGS = [f"qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)]


def macs(node: int) -> tuple[str, str]:
    """The addresses of a node's two halves."""
    return f"4C:BB:47:00:0{node}:0A", f"4C:BB:47:00:0{node}:0B"


@dataclass
class Kept:
    """An emulated switch, and the rack.yaml that it was brought to."""

    folder: Path
    emulator: Crs812Process
    keys: Mapping[str, Any]

    def rack(self, *without: str, **keys: object) -> Rack:
        """The rack, some keys of its switch replaced or left out."""
        return _load_rack(self.folder, self.emulator, {**self.keys, **keys}, without)

    @contextmanager
    def session(self) -> Iterator[ApiSession]:
        """A session that may write."""
        switch = self.rack().switches["crs812"]
        assert switch.tls
        where = (str(switch.address), switch.port)
        with ApiSession(*where, tls=switch.tls.sha256, user=USER, password=switch.password.resolve()) as session:
            yield session

    def by_hand(self, *sentences: str) -> None:
        """Execute manual sentences: "/menu/set .id=x name=y". A part <menu name=value> stands for that row's id."""
        with self.session() as session:
            for sentence in sentences:
                text = re.sub(r"<(\S+) (\S+)>", lambda row: _id_of_row(session, row[1], row[2]), sentence)
                command, *words = text.split()
                session.talk(command, *(f"={word}" for word in words))

    def declare(self) -> int:
        """Bring the switch to the rack; how many sentences that took."""
        rack, sent = self.rack(), 0
        goal = DeclaredTarget(rack, rack.switches["crs812"])
        with self.session() as session:
            reading = goal.read(lambda sentence: session.talk(*sentence))
            for write in writes(goal.plan(reading).changes, reading.release):
                secrets = (f"={name}={_resolve_secret(ref)}" for name, ref in write.secrets)
                session.talk(*write.sentence, *secrets)
                sent += 1
        return sent

    def drift(self, *without: str, **keys: object) -> tuple[SwitchDifference, ...]:
        """Return the differences that verify finds, over the connection that the rack declares."""
        rack = self.rack(*without, **keys)
        switch = rack.switches["crs812"]
        look = SwitchChecks(rack, switch)
        try:
            return switch_differences(switch, look.reading, DeclaredTarget(rack, switch).plan(look.reading))
        finally:
            look.close()

    def proven(self, machine: str, *without: str, **keys: object) -> list[Outcome]:
        """Return the outcomes of `sparkrack verify` for one host; the nodes are stand-ins."""
        rack = self.rack(*without, **keys)
        proof = Faked(rack, machine, {f"spark{n}": Node(self.emulator.folder, n) for n in range(1, 9)})
        arguments = ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:logging", "-c", "/dev/null"]
        arguments += [f"--rootdir={REPOSITORY}", "--import-mode=importlib", "-o", "python_files=verify.py"]
        pytest.main([str(REPOSITORY / "switch/verify.py"), *arguments], plugins=[proof])
        assert proof.outcomes
        return proof.outcomes


class Faked(VerifyPlugin):
    """A verification whose nodes are stand-ins."""

    def __init__(self, rack: Rack, machine: str, nodes: Mapping[str, Machine]) -> None:
        super().__init__(rack, frozenset({machine} & set(rack.nodes)), frozenset({machine} & set(rack.switches)))
        self._stand_ins = nodes

    @pytest.fixture(scope="session")
    def machines(self) -> Any:
        return self._stand_ins


class Node:
    """Answers the script of a verification, from the state file that the emulator writes for the node."""

    def __init__(self, folder: Path, number: int) -> None:
        self._file, self._macs = folder / f"spark{number}.json", macs(number)

    def run(self, _command: str) -> SimpleNamespace:
        link = json.loads(self._file.read_text())["links"]["1"]
        names = ("enp1s0f1np1", "enP2p1s0f1np1")
        links = [{"ifname": n, "address": mac.lower()} for n, mac in zip(names, self._macs, strict=True)]
        up = link["carrier"]
        speed = f"{link['speed']}Mb/s" if up else "Unknown!"
        text = (
            f"Speed: {speed}\n\tLink detected: {'yes' if up else 'no'}\nActive FEC encoding: {link['fec'] or 'Off'}\n"
        )
        stdout = probe_output({"links": json.dumps(links), **dict.fromkeys(names, text)})
        return SimpleNamespace(rc=0, stdout=stdout, stderr="")


@contextmanager
def declared(folder: Path, unit: Mapping[str, Any] | None = None, **keys: object) -> Iterator[Kept]:
    """A switch with all nodes cabled, brought to a declaration; ended afterwards. `unit`: keys of the emulator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRS812_READER", READER_PASSWORD)
        emulator = Crs812Process(folder, cables=_cables_with_macs(folder), settle=0.02, **(unit or {})).start()
        try:
            reader = {"password": {"env": "CRS812_READER"}, "port": emulator.rest_port}
            kept = Kept(folder, emulator, {"reader": reader, "purge": ["users"], "management": ["127.0.0.0/8"], **keys})
            kept.declare()
            yield kept
        finally:
            stop_all([emulator])


def _cables_with_macs(folder: Path) -> tuple[EmulatedCable, ...]:
    """The reference rack's cables, with the addresses that the switch hears at their ends."""

    def heard(tail: CableTail) -> CableTail:
        return tail.model_copy(update={"macs": macs(int(tail.node.removeprefix("spark")))})

    cables = reference_cables(folder)
    return tuple(cable.model_copy(update={"tails": tuple(map(heard, cable.tails))}) for cable in cables)


def _load_rack(folder: Path, emulator: Crs812Process, keys: Mapping[str, Any], without: tuple[str, ...]) -> Rack:
    (folder / "crs812").write_text(emulator.password)
    (folder / "crs812").chmod(0o600)
    password = {"password": {"file": str(folder / "crs812")}}
    reference.write(folder / "rack.yaml", emulator, {**password, **keys}, without=without)
    return load(folder / "rack.yaml")


def _id_of_row(session: ApiSession, menu: str, query: str) -> str:
    (row,) = session.talk(f"{menu}/print", "=.proplist=.id", f"?{query}")
    return row[".id"]


def _resolve_secret(reference: SecretRef) -> str:
    return reference.resolve().get_secret_value()
