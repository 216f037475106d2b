"""An operator who keeps a backup of a switch, spoils the switch, and puts the backup back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.routeros.menus import Menu
from core.routeros.reading import SwitchReading
from switch import backup
from switch.backup import Keeper
from switch.restore_target import BackupTarget
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.transactions import READER_PASSWORD, WHOLE, Operator
from tests.unit.cli.runs import Ended, forked

SNMP = {"user": "monitor", "authentication": {"env": "TEST_SNMP_A"}, "encryption": {"env": "TEST_SNMP_E"}}
SECRETS = {"TEST_SNMP_A": "canary-authentication", "TEST_SNMP_E": "canary-encryption"}
READER = "a-reader's-own-long-password"


NAME = "sparkrack-undo-1"
"""Name of the backup that is kept unless another is named."""


class Restorer:
    """Works in a folder of its own; `backups` is where its backups are."""

    def __init__(self, folder: Path, emulator: Crs812Process, **switch: Any) -> None:
        os.environ.update(SECRETS | {READER_PASSWORD: READER})
        self.emulator = emulator
        self.folder = folder
        self.operator = Operator(folder, emulator, {**WHOLE, "snmp": SNMP, **switch}, {"vlans": [1100, 1101]})
        self.declared = self.operator.goal()
        self.backups = folder / "state" / "sparkrack" / "spark8" / "crs812"

    def deploy(self) -> None:
        """Bring the switch to its declared state."""
        ended, _ = self.operator.run(self.declared)
        assert ended.done, ended

    def keep(self, name: str = NAME) -> str:
        """Keep a backup of the switch as it is."""
        switch = self.declared.switch
        os.environ["CRS812_PASSWORD"] = self.emulator.password
        with self.operator.line() as line:
            Keeper(self.backups, switch.backups, switch.password.resolve).keep(line, name)
        return name

    def goal(self, name: str = NAME, **options: Any) -> BackupTarget:
        """Return a backup as a target."""
        kept = backup.load(self.backups / name / "rows.json")
        return BackupTarget(self.declared.rack, self.declared.switch, kept, **options)

    def reading(self) -> SwitchReading:
        """Everything that a backup holds, as it is now."""
        with self.operator.open() as session:
            return self.goal().read(lambda sentence: session.talk(*sentence))

    def differs(self, one: SwitchReading, other: SwitchReading) -> list[str]:
        """The menus in which two readings differ."""
        menus: tuple[Menu, ...] = self.goal().menus
        return [menu.path for menu in menus if not one.same(other, (menu,))]

    def words(self, *words: str) -> list[str]:
        """`switch restore`, without the nodes, which are not there: the lock is for tests/unit/switch."""
        rack = str(self.folder / "rack.yaml")
        return ["switch", "restore", "--rack", rack, "--no-nodes", "--no-lock", "--settle", "4", *words]

    def restore(self, *words: str) -> Ended:
        """Run it."""
        state = str(self.folder / "state")
        return forked("sparkrack", *self.words(*words), CRS812_PASSWORD=self.emulator.password, XDG_STATE_HOME=state)

    def write(self, path: str, *query: str, **values: str) -> None:
        """Set fields of the row that answers a query, or of the only one, by hand as an administrator would."""
        with self.operator.open() as session:
            words = [f"={field.replace('_', '-')}={value}" for field, value in values.items()]
            if query:
                (row,) = session.talk(f"{path}/print", "=.proplist=.id", *query)
                words.append(f"=.id={row['.id']}")
            session.talk(f"{path}/set", *words)

    def add(self, path: str, **values: str) -> None:
        """Add a row by hand."""
        with self.operator.open() as session:
            session.talk(f"{path}/add", *(f"={field.replace('_', '-')}={value}" for field, value in values.items()))

    def remove(self, path: str, *query: str) -> None:
        """Remove rows by hand."""
        with self.operator.open() as session:
            ids = [row[".id"] for row in session.talk(f"{path}/print", "=.proplist=.id", *query)]
            session.talk(f"{path}/remove", f"=.id={','.join(ids)}")

    def spoil(self) -> None:
        """Simulate manual misconfiguration: a change in nearly every menu."""
        ethernet, bridge = "/interface/ethernet", "/interface/bridge"
        self.write(bridge, "?name=bridge", vlan_filtering="no")
        for name in ("qsfp56-dd-1-1", "qsfp56-dd-1-5"):
            self.write(ethernet, f"?default-name={name}", speed="200G-baseCR4")
        self.write(ethernet, "?default-name=qsfp56-dd-2-3", fec_mode="off")
        self.write(ethernet, "?default-name=qsfp56-dd-2-4", disabled="yes")
        self.write(ethernet, "?default-name=qsfp56-dd-2-7", mtu="1500", l2mtu="1584", name="spark8-leg")
        self.write(ethernet, "?default-name=sfp56-3", auto_negotiation="no", speed="10G-baseCR")
        self.add(bridge, name="second")
        self.write(f"{bridge}/port", "?interface=qsfp56-dd-2-5", bridge="second")
        self.remove(f"{bridge}/port", "?interface=qsfp56-dd-2-1")
        self.remove(f"{bridge}/vlan", "?vlan-ids=1100")
        self.add(f"{bridge}/vlan", bridge="bridge", vlan_ids="77", tagged="ether2")
        self.write(
            "/interface/ethernet/switch/qos/port", "?name=qsfp56-dd-1-3", pfc="disabled", egress_rate_queue3="100G"
        )
        self.remove("/interface/ethernet/switch/qos/profile", "?name=cnp")
        self.add("/interface/ethernet/switch/qos/profile", name="stray", dscp="7", traffic_class="2")
        self.write("/system/identity", name="somebody-else")
        self.write("/system/clock", time_zone_name="America/New_York")
        self.write("/ip/dns", servers="9.9.9.9")
        self.remove("/system/logging", "?action=sparkrack")
        self.remove("/system/logging/action", "?name=sparkrack")
        self.write("/snmp", trap_community="public", enabled="no")
        self.remove("/snmp/community", "?name=monitor")
        self.remove("/user", "?name=sparkrack-reader")
        self.add("/user", name="mallory", group="full", password="let-me-in-again")
        self.write("/ip/service", "?name=telnet", disabled="no")
        self.write("/tool/mac-server", allowed_interface_list="all")


MakeRestorer = Callable[..., Restorer]
