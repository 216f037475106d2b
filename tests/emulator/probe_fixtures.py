"""An owner of a switch full of private things, who makes a bundle of it; and the emulator as the switch of that."""

from __future__ import annotations

import copy
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from core.routeros.api import ApiSession
from core.routeros.menus import Row
from core.routeros.session import Client
from lab.routeros_emulator.config import CableTail, EmulatedCable
from switch.accept_record import anonymized, read_probe
from switch.anonymize import Mask
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.switch_runs import waits_for
from tests.emulator.transactions import READER_PASSWORD, WHOLE, Operator
from tests.unit.cli.runs import Ended, command

NODE_MACS = ("E8:9E:49:12:34:56", "E8:9E:49:12:34:57", "5A:11:22:33:44:55")
CABLE = EmulatedCable(
    cage="qsfp56-dd-1",
    tails=tuple(
        CableTail(lane=lane, lanes=2, gbps=100, node=f"spark{number}", port=1, macs=NODE_MACS if number == 1 else ())
        for number, lane in enumerate((1, 3, 5, 7), start=1)
    ),
)

PLANTED = (
    *("acme-berlin", "alice.smith", "hunter2-hunter2", "wolpertinger", "Invalidenstrasse", "+49 30 5550100"),
    *("sekrit-community", "uplink-to-acme", "9.9.9.9", "203.0.113", "198.51.100.77", "ntp.acme.example", "1.2.3.4"),
    *("0815-pin", "acme-script", "acme-schedule", "acmelog", "acme-class", "acme-group", "acme-lan", "Berlin"),
    *("ZX-9-SERIAL", *NODE_MACS, "12:34:5", "LAB00"),
)
"""Values on the switch that no fixture may contain."""

VOLATILE = (
    *("uptime", "free-memory", "cpu-load", "free-hdd-space", "when", "time", "date", "next-run", "expires-after"),
    *("last-link-down-time", "engine-id"),
)

OF_OTHERS = {"/user/active": (".id",), "/ip/arp": ("mac-address",)}
"""What a switch has of the hosts that are connected to it."""


def _plant_secrets(operator: Operator) -> None:
    """Secrets and names of an owner wherever RouterOS takes any."""
    note = "=comment=wolpertinger of alice.smith"
    with operator.open() as session:

        def row(path: str, *query: str) -> str:
            return "=.id=" + session.talk(f"{path}/print", "=.proplist=.id", *query)[0][".id"]

        session.talk("/system/identity/set", "=name=acme-berlin")
        ethernet = "/interface/ethernet"
        session.talk(f"{ethernet}/set", row(ethernet, "?name=sfp56-7"), "=name=uplink-to-acme", note)
        session.talk("/interface/bridge/add", "=name=acme-lan", note)
        session.talk("/interface/bridge/vlan/add", "=bridge=bridge", "=vlan-ids=7", "=tagged=uplink-to-acme", note)
        session.talk("/interface/ethernet/switch/qos/profile/add", "=name=acme-class", "=dscp=9", note)
        session.talk("/user/group/add", "=name=acme-group", "=policy=read", note)
        user = ("=name=alice.smith", "=group=acme-group", "=password=hunter2-hunter2", "=address=203.0.113.0/24")
        session.talk("/user/add", *user, note)
        session.talk("/snmp/set", "=contact=+49 30 5550100", "=location=Invalidenstrasse", "=trap-target=1.2.3.4")
        keys = ("=authentication-password=hunter2-hunter2", "=encryption-password=hunter2-hunter2")
        session.talk("/snmp/community/add", "=name=sekrit-community", "=addresses=203.0.113.0/24", *keys)
        session.talk("/system/script/add", "=name=acme-script", "=source=:put hunter2-hunter2", note)
        session.talk("/system/scheduler/add", "=name=acme-schedule", "=on-event=acme-script 0815-pin", note)
        session.talk("/ip/dns/set", "=servers=9.9.9.9")
        session.talk("/system/ntp/client/set", "=servers=ntp.acme.example,198.51.100.77")
        session.talk("/system/logging/action/add", "=name=acmelog", "=target=remote", "=remote=198.51.100.77")
        session.talk("/system/logging/add", "=topics=info", "=action=acmelog", "=prefix=acme-berlin")
        session.talk("/ip/service/set", row("/ip/service", "?name=winbox"), "=available-from=203.0.113.0/24")


class Owner:
    """The owner of a switch with planted values, who makes a bundle of it."""

    def __init__(self, folder: Path, emulator: Crs812Process) -> None:
        self.folder, self.emulator = folder, emulator
        os.environ.setdefault(READER_PASSWORD, "a-reader's-own-long-password")
        self.operator = Operator(folder, emulator, WHOLE)
        goal = self.operator.goal()
        ended, _ = self.operator.run(goal)
        assert ended.done, ended
        _plant_secrets(self.operator)
        waits_for(lambda: "initializing" not in emulator.links().values())

    def bundle(self, path: Path) -> Ended:
        words = ("--limit", "switches", "--claim", "switch.console-inspect", "--bundle", path)
        return command(
            "sparkrack", "accept", "--rack", self.folder / "rack.yaml", *words, CRS812_PASSWORD=self.emulator.password
        )


def files_of(path: Path) -> dict[str, bytes]:
    """The files of a bundle by their names below its folder."""
    with tarfile.open(path) as archive:
        return {entry.name.partition("/")[2]: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]


def probe(talker: Client) -> dict[str, Any]:
    """The record of a switch."""
    reading = read_probe(talker)
    return anonymized(reading, Mask.of(reading.everything))


def cables() -> tuple[EmulatedCable, ...]:
    second = EmulatedCable(
        cage="qsfp56-dd-2", tails=tuple(tail.model_copy(update={"macs": ()}) for tail in CABLE.tails)
    )
    return (CABLE, second)


MakeRecorded = Callable[..., Crs812Process]


def session(switch: Crs812Process) -> ApiSession:
    """A session of the user that the record calls `user-1`."""
    options: dict[str, Any] = {"tls": switch.fingerprint, "user": "user-1", "password": SecretStr(switch.password)}
    return ApiSession("127.0.0.1", switch.tls_port, **options)


class NoMask(Mask):
    """Replaces nothing."""

    def row(self, _path: str, row: Row) -> dict[str, str]:
        return dict(row)

    def words(self, text: str) -> str:
        return text


def probed(switch: Crs812Process) -> dict[str, Any]:
    """A record of a switch that was started from a record, in which nothing is replaced again."""
    with session(switch) as opened:
        return anonymized(read_probe(opened), NoMask((), ()))


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(document)
    for path, rows in found["menus"].items():
        for row in rows:
            for name in VOLATILE:
                row.pop(name, None)
            for name in OF_OTHERS.get(path, ()):
                row.pop(name, None)
    return found
