"""The switch as one object: tables, safe mode, links and log, wired together."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lab.routeros_emulator import vlans
from lab.routeros_emulator.cabling import PLUGGED, EmulatedCabling
from lab.routeros_emulator.certificate_authority import Identity, read_identity
from lab.routeros_emulator.clock import Clock
from lab.routeros_emulator.config import SwitchConfig
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.files import Files
from lab.routeros_emulator.history import History, SafeMode
from lab.routeros_emulator.key_store import KeyStore, KeyStoreError
from lab.routeros_emulator.lanes import Lane
from lab.routeros_emulator.link_wiring import LinkWiring
from lab.routeros_emulator.links import LinkEnvironment, Links, LinkTimer
from lab.routeros_emulator.menu import EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.neighbours import Neighbours
from lab.routeros_emulator.persistence import SavedState
from lab.routeros_emulator.request import RequestClient
from lab.routeros_emulator.scheduler import Schedule
from lab.routeros_emulator.script_jobs import Jobs
from lab.routeros_emulator.software import InstalledSoftware
from lab.routeros_emulator.store import Store, StoreAction
from lab.routeros_emulator.switch_chip import SwitchChip

if TYPE_CHECKING:
    from lab.routeros_emulator.fixture import RecordedLink

ETHERNET, BRIDGE, BRIDGE_PORT = "/interface/ethernet", "/interface/bridge", "/interface/bridge/port"
BONDING = "/interface/bonding"
CERTIFICATE = "/certificate"
#: Written fields of a sub-interface that leave its cage alone; inferred. Everything else restarts it.
_COSMETIC = frozenset({"name", "comment"})
#: Seconds after which a command that restarts the unit, or writes its firmware, takes effect: it is answered first.
_ANSWER_SECONDS = 0.05


class EmulatedDevice:
    """Everything behind the API. It knows nothing of sockets; ``later`` lends it a timer. ``fill`` may change what
    it has from the factory."""

    def __init__(
        self,
        config: SwitchConfig,
        menus: Sequence[EmulatedMenu],
        wires: LinkWiring,
        later: Callable[[float, Callable[[], None]], LinkTimer],
        *,
        factory: bool = False,
        fill: Callable[[Store], None] = lambda _store: None,
    ) -> None:
        self.config = config
        #: What it runs; the next start may run other software.
        self.software = InstalledSoftware.of(config)
        self.on_restart: Callable[[], None] = lambda: None
        self.hardware = config.hardware
        #: What a real unit showed of each port (default name), where that was recorded.
        self.recorded_links: Mapping[str, RecordedLink] = {}
        #: Test knob: values that monitor shows instead of its own, by field; None: it does not show the field.
        self.planted_words: dict[str, str | None] = {}
        self.clock = Clock()
        self.wires = wires
        menus = [menu for menu in menus if menu.since <= self.version]
        self.menus = {menu.path: menu for menu in menus}
        self.clients: dict[int, RequestClient] = {}
        self.log: deque[Values] = deque(maxlen=1000)
        self._logged = 0
        self._nvram = SavedState(config.state)
        self.store = Store(menus)
        self.chip = SwitchChip(self)
        #: Values of sensors that differ from those of a unit at rest, by name; an empty one: there is no such row.
        self.sensors: dict[str, str] = {}
        self.history = History(self.store)
        self.safe_mode = SafeMode(self.store, self.history, self.save)
        self.files = Files(config.state.with_name(f"{config.state.stem}.files"))
        self.jobs = Jobs(self.clock, later)
        self.schedule = Schedule(self, later)
        self._later = later
        self.unroll_delay = config.unroll_delay
        #: Bytes of the flash that files may take, the existing ones included.
        self.flash = config.free_space
        #: Test knob: addresses that the fabric has learned besides those of nodes and clients, by port (default name).
        self.learned: list[tuple[str, str]] = []
        self.vault = KeyStore(config.state.with_name(config.state.name + ".certificates"))
        self._fill_tables(menus, fill, factory=factory)
        self.neighbours = Neighbours(self.hardware)
        around = LinkEnvironment(
            self._lanes_of_cage,
            self._fabric_l2mtu,
            later,
            self.tell,
            self.chip.trained,
            self._vlans_of_port,
            self.clock.stamp,
        )
        self.links = Links(self.hardware, EmulatedCabling(config.cables), wires, config.settle, around)
        self.store.observers.append(self._follow_action)
        self.save()
        #: Further parts to reset when the unit is restored to its start.
        self.resets: list[Callable[[], None]] = []
        self._start = (self.store.dump(), self.vault.snapshot())

    def _fill_tables(self, menus: Sequence[EmulatedMenu], fill: Callable[[Store], None], *, factory: bool) -> None:
        """Give the tables the values of the factory and of the caller, then, but for `factory`, what was saved."""
        for menu in menus:
            if menu.factory is not None:
                self.store.fill(menu.path, list(menu.factory(self)))
        fill(self.store)
        if factory:
            self.vault.clear()
            self.files.clear()
        else:
            self._nvram.load(self.store)
            self.vault.load()
        self._match_vault()

    @property
    def version(self) -> tuple[int, ...]:
        """The RouterOS version as numbers: (7, 23, 7)."""
        return tuple(map(int, re.findall(r"\d+", self.config.version.split()[0])))

    def tell(self, topics: str, message: str) -> None:
        """Write a line to the unit's own log, which ``/log/print`` shows."""
        self._logged += 1
        row = {".id": f"*{self._logged:X}", "time": self.clock.stamp(), "topics": topics, "message": message}
        self.log.append(row)

    def save(self) -> None:
        """Keep the tables for the next start. In safe mode only those are kept that it does not cover, so that
        a crash unrolls."""
        outside = [menu.path for menu in self.store.menus.values() if menu.outside and menu.rows is None]
        self._nvram.save(self.store, None if self.safe_mode.holder is None else outside)

    def free_space(self) -> int:
        """Bytes that are left for files."""
        return max(0, self.flash - sum(len(self.files.read(name)) for name in self.files.names()))

    def write_file(self, name: str, data: bytes) -> None:
        """Make or replace a file. TrapError when the flash has no room for it; the wording is inferred."""
        old = len(self.files.read(name)) if name in self.files.names() else 0
        if len(data) - old > self.free_space():
            raise failure("not enough space on the flash")
        self.files.write(name, data)

    def restart(self, *, installs: bool) -> None:
        """Restart after the answer to the command was sent. `installs`: with the package files."""
        files, before = self.files, self.software

        def end() -> None:
            self.software, lines = before.restarted(files, installs=installs)
            for line in lines:
                self.tell("system,info" if line.startswith("installed") else "system,error", line)
            self.on_restart()

        self._later(_ANSWER_SECONDS + self.config.restarts_after, end)

    def upgrade_firmware(self) -> None:
        """Write the firmware that the release has; the next start uses it. The line of the log is RouterOS's own."""

        def written() -> None:
            self.software = replace(self.software, written=self.config.version.split()[0])
            self.tell(
                "system,info,critical", "Firmware upgraded successfully, please reboot for changes to take effect!"
            )

        self._later(_ANSWER_SECONDS, written)

    def reset(self) -> None:
        """Restore the state of the process start: tables, certificates, cables, knobs; no session is logged in."""
        self.safe_mode.forget()
        self.clients.clear()
        tables, identities = self._start
        self.store.restore(tables)
        self.vault.restore(identities)
        self.history.clear()
        self.neighbours.forget()
        self.log.clear()
        self.unroll_delay, self.links.settle = self.config.unroll_delay, self.config.settle
        self.links.plant = EmulatedCabling(self.config.cables)
        for port in self.hardware.by_name:
            self.chip.reset(port)
        self.chip.stale.clear()
        self.chip.retrains = self.chip.quiet = False
        self.flash = self.config.free_space
        self.learned.clear()
        self.sensors.clear()
        for begin in self.resets:
            begin()
        self.files.clear()
        self.jobs.forget()
        self.clock.shift = timedelta()
        self.clock.synchronized = False
        self.schedule.boot()
        self.links.boot()
        self.links.downs = dict.fromkeys(self.links.downs, 0)
        self.links.went_down.clear()
        self.save()

    def configured_identity(self) -> Identity | None:
        """The certificate of the configuration. Raises OSError or KeyStoreError."""
        cert, key = self.config.tls_cert, self.config.tls_key
        if cert is None or key is None:
            return None
        try:
            return read_identity(key.read_bytes() + b"\n" + cert.read_bytes())
        except ValueError as error:
            raise KeyStoreError(f"{cert}, {key}: not a certificate and its key: {error}") from None

    def _match_vault(self) -> None:
        """Keys without a row are left over from a crash; the configured certificate may have been renewed."""
        rows = {row.id: row for row in self.store.rows(CERTIFICATE)}
        for number in self.vault.snapshot().keys() - rows.keys():
            self.vault.drop(number)
        identity = self.configured_identity()
        for row in rows.values():
            if identity is not None and "configured" in row.values:
                self.vault.put(row.id, identity)

    def left(self, client: RequestClient) -> None:
        """End a session: its changes in safe mode are reverted, after ``unroll_delay`` seconds."""
        self.clients.pop(client.number, None)
        if self.safe_mode.holder is not client:
            return
        if self.unroll_delay > 0:
            self._later(self.unroll_delay, lambda: self._unroll_for(client))
        else:
            self._unroll_for(client)

    def _unroll_for(self, client: RequestClient) -> None:
        if self.safe_mode.holder is client:
            self.safe_mode.unroll()

    def offloaded_bridge(self) -> str | None:
        """The name of the one bridge that the switch chip forwards: the first that is enabled and has a port with
        hw=yes. The manual says that only one can be; that it is the first is inferred.
        """
        ports = [row.values for row in self.store.rows(BRIDGE_PORT) if row.values["hw"] == "true"]
        for bridge in self.store.rows(BRIDGE):
            name = bridge.values["name"]
            if bridge.values["disabled"] == "false" and any(port["bridge"] == name for port in ports):
                return name
        return None

    def membership(self, interface: str) -> EmulatedRow | None:
        """The bridge port row of an interface, by its present name; a slave is a port through its bond."""
        bond = self.bond_of(interface)
        return self.bridge_port(interface if bond is None else bond.values["name"])

    def bridge_port(self, name: str) -> EmulatedRow | None:
        """The bridge port row that has exactly this name."""
        return self.store.first(BRIDGE_PORT, "interface", name)

    def bond_of(self, interface: str) -> EmulatedRow | None:
        """The enabled bond that an interface is a slave of."""
        bonds = (row for row in self.store.rows(BONDING) if row.values["disabled"] == "false")
        return next((row for row in bonds if interface in row.values["slaves"].split(",")), None)

    def runs(self, name: str) -> bool:
        """Whether an interface has a link; a bond has one while a slave has. False for a name that neither has."""
        bond = self.store.find(BONDING, name)
        slaves = [name] if bond is None else bond.values["slaves"].split(",")
        ports = [row for slave in slaves if (row := self.store.find(ETHERNET, slave))]
        return any(self.links.status(port.values["default-name"]).running for port in ports)

    def unchanged_link(self, default_name: str) -> RecordedLink | None:
        """What a real unit showed of a port; None unless that was recorded, all lanes of its cage are set as they were
        then, and each cable of the cage is still plugged.
        """
        recorded = self.recorded_links.get(default_name)
        if recorded is None:
            return None
        cage = self.hardware.by_name[default_name].cage
        for port in self.hardware.by_cage[cage]:
            now, then = self.ethernet(port.name).values, self.recorded_links.get(port.name)
            if then is None or any(now.get(name) != value for name, value in then.settings.items()):
                return None
        plugged = all(socket.state == PLUGGED for socket in self.links.plant.at(cage))
        return recorded if plugged else None

    def ethernet(self, default_name: str) -> EmulatedRow:
        """The row of a sub-interface, by the name it has from the factory."""
        row = self.store.first(ETHERNET, "default-name", default_name)
        if row is None:
            raise KeyError(default_name)
        return row

    def _lanes_of_cage(self, cage: str) -> list[Lane]:
        rows = [self.ethernet(port.name).values for port in self.hardware.by_cage[cage]]
        return [
            Lane(
                enabled=row["disabled"] == "false",
                negotiates=row["auto-negotiation"] == "true",
                speed=row.get("speed"),
                fec=row.get("fec-mode", "auto"),
            )
            for row in rows
        ]

    def _vlans_of_port(self, default_name: str) -> vlans.Membership | None:
        return vlans.membership(self, self.ethernet(default_name).values["name"])

    def _fabric_l2mtu(self, default_name: str) -> int | None:
        """The l2mtu of a sub-interface that is an enabled port of the offloaded bridge. Another bridge would
        go through the CPU; its ports are not wired at all here."""
        values = self.ethernet(default_name).values
        member = self.membership(values["name"])
        if member is None or member.values["disabled"] == "true":
            return None
        return int(values["l2mtu"]) if member.values["bridge"] == self.offloaded_bridge() else None

    def _follow_action(self, action: StoreAction) -> None:
        self.tell("system,info", f"{action.text} by {action.by}")
        for change in action.changes:
            if change.path == CERTIFICATE and change.after is None:
                self.vault.drop(change.id)
        self.links.restart(self._list_restarted_cages(action))
        self.links.reconcile()
        self.save()

    def _list_restarted_cages(self, action: StoreAction) -> Iterable[str]:
        """Cages that an action takes down (MikroTik manual: reconfiguring any lane restarts the whole cage; a
        changed l2mtu bounces every port). That writing the value a lane already has restarts it too is
        inferred."""
        cages: set[str] = set()
        for change in action.changes:
            if change.path != ETHERNET or change.after is None:
                continue
            if "l2mtu" in change.fields():
                return self.hardware.by_cage
            if (action.written.get((change.path, change.id), frozenset()) | change.fields()) - _COSMETIC:
                cages.add(self.hardware.by_name[change.after["default-name"]].cage)
        return sorted(cages)
