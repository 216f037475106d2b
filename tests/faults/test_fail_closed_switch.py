"""Every menu of the switch that a plan reads, answered in every bad way: exit 1, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyinfra
import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.inventory import Inventory
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.model.selection import select
from core.routeros.connector import RouterOSConnector
from core.routeros.rollback_timer import PREFIX
from core.util.event import EventKind
from sparkrack.engine import session as engine
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.plan import Plan
from tests.unit.engine.fake_rack import FILE
from tests.unit.switch.in_memory_switch import Clock, Device
from tests.unit.switch.racks import EVERY_KEY, make_rack

FAULTS = (
    *("empty", "garbage", "another row"),
    *("failure: std failure, timeout", "not enough permissions (9)", "no such command prefix"),
)
MAY_BE_EMPTY = frozenset(
    {
        *(
            "/interface/bonding",
            "/interface/bridge",
            "/interface/bridge/port",
            "/interface/bridge/vlan",
            "/interface/bridge/host",
        ),
        *("/interface/ethernet/switch/qos/profile", "/interface/ethernet/switch/qos/priority-flow-control"),
        *("/system/logging", "/system/logging/action", "/system/scheduler", "/system/script", "/snmp/community"),
        *("/user", "/user/group", "/user/active", "/ip/arp"),
        "/safe-mode",
    }
)
"""Lists: none is an answer, and what is declared is added. The switch refuses what it has already. Safe mode matters
to a plan while a rollback timer is armed (a test of its own), and is looked at again before a write."""
MAY_BE_SPARSE = frozenset(
    {
        *(
            "/system/identity",
            "/system/clock",
            "/system/ntp/client",
            "/ip/dns",
            "/snmp",
            "/ip/neighbor/discovery-settings",
        ),
        *("/interface/ethernet/switch/qos/settings", "/tool/bandwidth-server", "/tool/mac-server"),
        *("/tool/mac-server/mac-winbox", "/tool/mac-server/ping"),
    }
)
"""Settings: RouterOS leaves a field out that has no value. What is declared is set, which does no harm twice."""
ONLY_REPORTED = frozenset({"/safe-mode", "/system/routerboard", "/user/active", "/ip/arp", "/interface/bridge/host"})
"""Menus that only add to a message (whom a change disturbs), or that are compared with a declared serial number."""


@dataclass
class SwitchAnswers:
    """The answer to one menu, and every sentence that was sent to the switch."""

    path: str = ""
    fault: str = ""
    armed: bool = False
    sent: list[str] = field(default_factory=list)

    def __copy__(self) -> SwitchAnswers:
        """pyinfra copies host data; the sentences must be recorded in this object."""
        return self


class SwitchNode(RouterOSConnector):
    """A switch in memory."""

    def connect(self) -> None:
        device = Device(Clock())
        if self.host.data.reported.armed:
            device.tables["/system/script"].append(
                {".id": "*7", "name": f"{PREFIX}20260101T000000-0002", "source": "/x add"}
            )
        self.line = device.line()

    def _carry_out(self, command: StringCommand) -> tuple[bool, CommandOutput]:
        reported = self.host.data.reported
        path = command.get_raw_value().split()[0]
        reported.sent.append(path)
        if reported.path != path.removesuffix("/print"):
            return super()._carry_out(command)
        match reported.fault:
            case "empty":
                return True, CommandOutput([])
            case "garbage":
                return True, CommandOutput([OutputLine("stdout", "\x01%% (what is this)")])
            case "another row":
                return True, CommandOutput([OutputLine("stdout", '{"what": "is this"}')])
        return False, CommandOutput([OutputLine("stderr", reported.fault)])


@pytest.fixture(scope="module", autouse=True)
def _set_secrets() -> Iterator[None]:
    """A plan is refused where a declared secret cannot be had."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("SNMP_A", "SNMP_E", "READER_PASSWORD", "CRS812_PASSWORD"):
            patched.setenv(name, f"swordfish-{name}")
        yield


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_rack(tmp_path_factory.mktemp("rack"), **EVERY_KEY)


def planned(rack: Any, reported: SwitchAnswers) -> Plan:
    found, switch = rack
    name, data = f"@routeros/{switch.name}", {"rack": found, "switch": switch, "reported": reported}
    made = Inventory(([(name, data)], {}), switches=([name], {}))  # type: ignore[no-untyped-call]
    for host in made:
        host.connector_cls = SwitchNode
    with patch.object(engine, "make_inventory", lambda *_, **__: made), patch.object(pyinfra, "is_cli", True):
        session = engine.RunSession(found, FILE, select(found, limit=[switch.name]))
        try:
            session.connect()
            session.prepare()
            plan = evaluate(session, FILE)
        finally:
            session.close()
    assert {path.rpartition("/")[2] for path in reported.sent} <= {"print"}, reported.sent
    assert "cannot be evaluated" not in plan.model_dump_json()
    return plan


def harmless(path: str, fault: str) -> bool:
    if fault == "empty":
        return path in MAY_BE_EMPTY
    return fault == "another row" and path in MAY_BE_SPARSE | ONLY_REPORTED


@pytest.fixture(scope="module")
def menus(rack: Any) -> list[str]:
    """What a plan reads of a sound switch, which has something to change."""
    reported = SwitchAnswers()
    assert planned(rack, reported).code == 2
    return [path.removesuffix("/print") for path in dict.fromkeys(reported.sent)]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_answer(fault: str, rack: Any, menus: list[str]) -> None:
    assert len(menus) > 25
    for path in menus:
        plan = planned(rack, SwitchAnswers(path, fault))
        if harmless(path, fault):
            assert plan.code == 2, f"{path}: {fault} is no longer believed"
        else:
            assert plan.code == 1, f"{path}: {fault} is believed: {plan.hosts[0]}"
            assert list(plan.hosts[0].events(EventKind.UNKNOWN, EventKind.REFUSED))


@pytest.mark.parametrize("fault", FAULTS)
def test_safe_mode_is_unknown_beside_an_armed_rollback_timer(fault: str, rack: Any) -> None:
    assert planned(rack, SwitchAnswers(armed=True)).code == 2, "the sound switch"
    plan = planned(rack, SwitchAnswers("/safe-mode", fault, armed=True))
    assert plan.code == 1
    assert list(plan.hosts[0].events(EventKind.UNKNOWN))


def test_every_menu_that_is_named_is_read(menus: list[str]) -> None:
    assert set(menus) >= MAY_BE_EMPTY | MAY_BE_SPARSE | ONLY_REPORTED
