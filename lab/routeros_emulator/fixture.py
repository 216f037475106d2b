"""A unit as a probe recorded it: its release, its rows with their ids, the devices on its ports.

The file is JSON: ``format`` 1, ``version``, ``menus`` (path → rows as printed), ``refused`` (path → the trap of a print
of the menu), ``monitor`` (rows of /interface/ethernet/monitor). Other keys are for readers.

Rows are kept as they were printed, including fields that the emulator does not know: those are printed and cannot be
written. Values that the emulator computes itself (hw-offload, counters) follow its own rules. The link of a port is
shown as it was recorded, words and missing fields included, until a lane of its cage is set otherwise or a cable of the
cage is pulled; then it follows the emulator's rules. A fixture contains no password: its users can log in only if the
configuration has a user of the same name.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.routeros_emulator.config import CableTail, EmulatedCable, EmulatorConfigError, SwitchConfig
from lab.routeros_emulator.link_modes import MODES
from lab.routeros_emulator.menu import EmulatedMenu, Values
from lab.routeros_emulator.menus.ntp import CLIENT, SERVER_FIELDS, SERVERS
from lab.routeros_emulator.passwords import digest
from lab.routeros_emulator.ports import MODELS, EmulatedModel

if TYPE_CHECKING:
    from lab.routeros_emulator.store import Store

FORMAT = 1
_ETHERNET, _USER, _SERVICE, _CERTIFICATE = "/interface/ethernet", "/user", "/ip/service", "/certificate"
_RESOURCE, _BOARD, _PACKAGE, _IDENTITY, _MODE = (
    f"/system/{name}" for name in ("resource", "routerboard", "package", "identity", "device-mode")
)
#: Computed menus whose rows are facts of the unit; the rest of them follows from what happens.
_FACTS = (_RESOURCE, _BOARD, _PACKAGE, _MODE)
_MOVING = ("uptime", "free-memory", "cpu-load", "free-hdd-space")
#: Printed only while something is so; a recorded one must not outlast it.
_PASSING = ("hw-offload-group", "next-run")


#: What is set on a lane and decides about the link.
_SETTINGS = ("disabled", "auto-negotiation", "speed", "fec-mode")


@dataclass(frozen=True)
class RecordedLink:
    """What a unit showed of a port: the monitor's row, whether the port was running, and what was set on it then."""

    monitor: Values
    running: str
    settings: Values


@dataclass(frozen=True)
class RecordedUnit:
    """A recorded unit. `hardware` is the model that has its ports."""

    hardware: EmulatedModel
    version: str
    tables: dict[str, list[Values]]
    refused: frozenset[str]
    seen: dict[str, Values]

    def config(self, config: SwitchConfig) -> SwitchConfig:
        """Return a configuration for this unit: its identity, and cables where the configuration has none. Clients on
        this machine are accepted, regardless of the limits of the unit's own services.
        """
        board = self._only_row(_BOARD)
        facts: dict[str, Any] = {
            "version": self.version,
            "model": self.hardware.board,
            "serial": board.get("serial-number"),
            "firmware": board.get("current-firmware"),
            "identity": self._only_row(_IDENTITY).get("name"),
            "packages": tuple(row["name"] for row in self.tables.get(_PACKAGE, ()) if "name" in row) or None,
            "cables": tuple(self._list_cables()) if not config.cables else None,
            "let_in": (*config.let_in, IPv4Network("127.0.0.0/8")),
        }
        return config.model_copy(update={name: value for name, value in facts.items() if value is not None})

    def menus(self, menus: Sequence[EmulatedMenu]) -> list[EmulatedMenu]:
        """The menus that the unit has, with its own facts in place of the emulator's."""
        return [self._replay_menu(menu) for menu in menus if menu.path not in self.refused]

    def fill(self, store: Store) -> None:
        """Put the recorded rows in the place of the factory's; a user of the configuration stays."""
        configured = {row.values["name"]: row.values for row in store.rows(_USER)}
        tables: dict[str, dict[str, Values]] = {}
        for path, rows in self.tables.items():
            menu = store.menus.get(path)
            if menu is not None and menu.rows is None:
                tables[path] = {
                    _spell_row_id(row, menu): _store_row(menu, row, self.version)
                    for row in _keep_static_rows(menu, rows)
                }
        for user in tables.get(_USER, {}).values():
            random_password = {"password": digest(secrets.token_hex(16))}
            user |= {"password": configured.pop(user.get("name", ""), random_password)["password"]}
        store.load(tables, {})
        self._name_certificate(store)
        usual = {item.name: item.default for item in SERVER_FIELDS if item.default is not None}
        servers = [part for part in self._only_row(CLIENT).get("servers", "").split(",") if part]
        if SERVERS in store.menus:
            store.fill(SERVERS, [usual | {"address": server} for server in servers])
        following: dict[str, int] = {}
        for path in store.dump()["tables"]:
            menu = store.menus[path]
            pool, last = menu.pool or path, max((row.id for row in store.rows(path)), default=menu.first_id - 1)
            following[pool] = max(following.get(pool, 0), last + 1)
        store.load({}, following)
        if _USER in tables:
            configured.pop("admin", None)
            store.fill(_USER, list(configured.values()))

    @property
    def recorded_links(self) -> dict[str, RecordedLink]:
        """What the unit showed of each port, by default name."""
        return {port: self._make_link(row, self._ethernet_row(port)) for port, row in self.seen.items()}

    def _make_link(self, monitor: Values, row: Values) -> RecordedLink:
        settings = {name: row[name] for name in _SETTINGS if name in row}
        return RecordedLink(monitor, row.get("running", "false"), settings)

    def _only_row(self, path: str) -> Values:
        return next(iter(self.tables.get(path, ())), {})

    def _replay_menu(self, menu: EmulatedMenu) -> EmulatedMenu:
        if menu.path not in _FACTS or menu.path not in self.tables or menu.rows is None:
            return menu
        computed, recorded = menu.rows, self.tables[menu.path]

        def rows(device: Any) -> Iterator[Values]:
            now = next(iter(computed(device)), {})
            for row in recorded:
                yield row | {name: now[name] for name in _MOVING if name in row and name in now}

        return replace(menu, rows=rows)

    def _list_cables(self) -> Iterator[EmulatedCable]:
        """A tail for each leg that had a link: the only thing known of the other ends."""
        for cage in self.hardware.cages:
            ports = [port for port in self.hardware.by_cage[cage] if port.name in self.seen]
            if not any(self.seen[port.name].get("sfp-module-present") == "true" for port in ports):
                continue
            copper = any("om4" not in name for port in ports for name in self.seen[port.name] if "link-length" in name)
            legs = [(port, self.seen[port.name]) for port in ports if self.seen[port.name].get("status") == "link-ok"]
            tails = []
            for number, (port, row) in enumerate(legs):
                mode = MODES.get(self._ethernet_row(port.name).get("speed", ""))
                lanes = mode.lanes if mode and row.get("auto-negotiation") == "disabled" else len(ports)
                gbps = row.get("rate", "").removesuffix("Gbps")
                if gbps.isdecimal():
                    tails.append(
                        CableTail(lane=port.lane, lanes=lanes, gbps=int(gbps), node=f"{cage}-{number}", port=0)
                    )
            yield EmulatedCable(cage=cage, medium="copper" if copper else "optic", tails=tuple(tails))

    def _ethernet_row(self, default_name: str) -> Values:
        rows = self.tables.get(_ETHERNET, ())
        return next((row for row in rows if row.get("default-name") == default_name), {})

    def _name_certificate(self, store: Store) -> None:
        """The configured certificate is the one that the unit's api-ssl has, under the name it has there."""
        shown = next((row for row in store.rows(_SERVICE) if row.values.get("name") == "api-ssl"), None)
        mine = next((row for row in store.rows(_CERTIFICATE) if "configured" in row.values), None)
        if mine is not None and shown is not None and shown.values.get("certificate"):
            mine.values["name"] = shown.values["certificate"]


def read(path: Path) -> RecordedUnit:
    """Read a fixture. Raises EmulatorConfigError for an invalid one, or one of another kind of unit."""
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise EmulatorConfigError(f"{path}: a fixture of another format ({document['format']}); known is {FORMAT}")
        tables = {menu: [_check_row(row) for row in rows] for menu, rows in document["menus"].items()}
        monitor = [_check_row(row) for row in document["monitor"]]
        refused = frozenset(document["refused"])
        version = str(document["version"])
    except OSError as error:
        raise EmulatorConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EmulatorConfigError(f"{path}: not a fixture ({type(error).__name__}: {error})") from None
    names = {row.get("name", ""): row.get("default-name", "") for row in tables.get(_ETHERNET, ())}
    hardware = next((model for model in MODELS.values() if set(model.by_name) == set(names.values())), None)
    if hardware is None:
        known = " or ".join(f"{model.title} ({len(model.ports)} ports)" for model in MODELS.values())
        raise EmulatorConfigError(f"{path}: not of a {known}: its ports have other names")
    if not version[:1].isdecimal():
        raise EmulatorConfigError(f"{path}: {version!r} is not a version of RouterOS")
    return RecordedUnit(
        hardware, version, tables, refused, {names[row["name"]]: row for row in monitor if row.get("name") in names}
    )


def _check_row(row: dict[str, str]) -> Values:
    if not all(isinstance(value, str) for value in row.values()):
        raise TypeError("a row has a value that is not a text")
    return dict(row)


def _keep_static_rows(menu: EmulatedMenu, rows: list[Values]) -> list[Values]:
    """Rows that the emulator makes itself are not kept as others are."""
    return [row for row in rows if menu.dynamic is None or row.get("dynamic") != "true"]


def _spell_row_id(row: Values, menu: EmulatedMenu) -> str:
    try:
        number = menu.first_id if menu.singleton else int(row[".id"].removeprefix("*"), 16)
    except (KeyError, ValueError):
        raise EmulatorConfigError(f"the fixture has a row of {menu.path} without an id") from None
    return f"*{number:X}"


def _store_row(menu: EmulatedMenu, row: Values, version: str) -> Values:
    """A printed row as the store has it: under the names that no version changed."""
    numbers = tuple(int(part) for part in version.split()[0].split(".") if part.isdecimal())
    spelled = {item.spelling(numbers): item.name for item in menu.fields}
    values = {spelled.get(name) or name: value for name, value in row.items() if name not in (".id", *_PASSING)}
    if menu.path == _SERVICE and values.get("certificate") == "none":
        values["certificate"] = ""
    return values
