"""Restores as data: rows now, rows in the backup, what is planned between them."""

from __future__ import annotations

from typing import Any

import pytest

from core.routeros.change_plan import ChangePlan
from core.routeros.errors import RefusedError
from switch.restore_target import BackupTarget
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.rows import QOS, Tables, factory, reading


def planned(rack: MakeRack, now: Tables, kept: Tables | None = None, **keys: Any) -> ChangePlan:
    """Return the plan that restores `now` to the factory state, or to `kept`."""
    return BackupTarget(*rack(**keys), reading(factory() if kept is None else kept)).plan(reading(now))


def reported(rack: MakeRack, now: Tables, kept: Tables | None = None, **keys: Any) -> str:
    return "\n".join(planned(rack, now, kept, **keys).notes)


def refused(rack: MakeRack, now: Tables, kept: Tables | None = None, **keys: Any) -> str:
    with pytest.raises(RefusedError) as fault:
        planned(rack, now, kept, **keys)
    return str(fault.value)


def set_up() -> Tables:
    """A switch with something in every menu of many rows."""
    tables = factory()
    tables["/interface/bridge/vlan"] = [{".id": "*1", "bridge": "bridge", "vlan-ids": "7", "tagged": "ether2"}]
    tables["/system/logging/action"].append({".id": "*9", "name": "mine", "target": "remote", "remote": "10.77.0.1"})
    tables["/system/logging"].append({".id": "*9", "topics": "info", "action": "mine", "disabled": "false"})
    tables["/snmp/community"].append({".id": "*9", "name": "words", "security": "none"})
    tables["/user/group"].append({".id": "*9", "name": "few", "policy": "read"})
    tables[f"{QOS}/profile"].append({".id": "*9", "name": "mine", "dscp": "7", "traffic-class": "2"})
    tables[f"{QOS}/priority-flow-control"].append({".id": "*9", "name": "mine", "traffic-class": "2", "rx": "yes"})
    return tables
