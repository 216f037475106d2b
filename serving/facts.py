"""Facts of a node about the units that it serves: files by their hashes, services, and the records of coordinators."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from core.ops import host_facts
from core.probes.systemd_units import SystemdUnit, parse_units
from core.util import managed_file, resources
from core.util.managed_file import FileState
from serving import desired, programs
from serving import gateway_facts as gateway_facts
from serving.launch import UNIT_FILES
from serving.services import STATE_FOLDER as STATE_FOLDER
from serving.services import UNITS, show_services

FILES = "serving-files"
LEASES = "serving-leases"
SERVICES = "serving-services"
RECORDS = "serving-records"
CONTAINERS = "serving-containers"
STATES = ("down", "gating", "starting", "ready", "busy", "draining", "stuck", "held", "stopping")
"""States of a unit, as its coordinator records them."""
AT_REST = ("down", "held")
"""States in which no rank runs and none is about to start."""
_ENDINGS = ("args", "env", "json", "gate.json", "secret", "key", "token", "ray", "pending", "previous")
_NAME = r"[a-z0-9][a-z0-9_]{0,30}"
_OWN = re.compile(
    rf"{UNIT_FILES}/({_NAME})\.(?:{'|'.join(map(re.escape, _ENDINGS))})"
    rf"|{UNIT_FILES}/({_NAME})\.files/.+"
    rf"|{desired.UNITS}/sparkrack-serve-({_NAME})(?:-agent|-coordinator)?\.service"
    rf"|{desired.UNITS}/sparkrack-({_NAME})\.slice"
)
_PATHS = (
    *(file.path for file in programs.programs()),
    *(f"{UNIT_FILES}/*.{ending}" for ending in _ENDINGS if ending != "gate.json"),
    f"{desired.UNITS}/sparkrack-serve-*.service",
    f"{desired.UNITS}/sparkrack-*.slice",
)
_SERVICE = re.compile(rf"sparkrack-serve-{_NAME}(?:-agent|-coordinator)?\.service")
_LEASE = re.compile(rf"{UNIT_FILES}/[^/]+\.secret")
_CONTAINER = re.compile(
    rf"argv (?P<ran>{_NAME}) (?P<hash>[0-9a-f]{{64}})|env (?P<env>{_NAME}) (?P<variable>[A-Za-z_][A-Za-z0-9_]*)"
    rf"|container (?P<named>{_NAME}) (?P<state>[a-z]+)"
)
_RECORD = re.compile(r"([^/]+)\.json ([A-Za-z0-9+/=]*)")
_NOT_FOUND = SystemdUnit("not-found", "inactive", "")
_VALID_LEASE = (
    r'[ -f "$f" ] && [ "$(stat -c "%F %s" -- "$f")" = "regular file 65" ] && grep -Eqx "[0-9a-f]{64}" -- "$f"'
)

host_facts.register(
    "serving",
    host_facts.Probe(
        commands={
            # Of a secret the node sends owner, mode and hash only.
            FILES: (
                f"( {managed_file.probe_hashes(_PATHS)}) || exit 9; "
                f"( {managed_file.probe_trees(str(UNIT_FILES), '*.files')} ) || exit 9"
            ),
            LEASES: f'for f in {UNIT_FILES}/*.secret; do if {_VALID_LEASE}; then echo "$f"; fi; done',
            SERVICES: (
                f'd={UNIT_FILES}; [ ! -e "$d" ] || stat -c "folder %a %U:%G %n" "$d" || exit 9; '
                "for c in /sys/fs/cgroup/system.slice/sparkrack-serve-*.service; do "
                '[ ! -d "$c" ] || echo "running ${c##*/}"; done'
            ),
            UNITS: show_services(),
            RECORDS: (
                f"for f in {STATE_FOLDER}/*.json; do case $f in *.rank.json) continue ;; esac; "
                '[ ! -f "$f" ] || { printf "%s " "${f##*/}"; head -c 65536 -- "$f" | base64 -w0; echo; }; done'
            ),
            **gateway_facts.COMMANDS,
            CONTAINERS: resources.shell_text("serving", "templates/running-ranks.sh", folder=UNIT_FILES),
        },
    ),
)


@dataclass(frozen=True)
class CoordinatorRecord:
    """What a coordinator keeps of its unit: the desired state that it was given, the state, its reason, seconds of a
    start, and what the state follows from.
    """

    desired_state: str = "down"
    state: str = "down"
    reason: str = "never started"
    figures: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""


def starts_again(cause: str) -> bool:
    """Return whether a start can do what it could not before, by what a unit is held for: a gate, or a machine. What
    failed by itself fails again, and repeated failures leak memory of the GPU (reported).
    """
    return cause in ("gate", "machine")


def _keep_numbers(values: object) -> dict[str, float]:
    """The figures that are numbers: only a sentence has them, so that others do not make the record unreadable."""
    known = values if isinstance(values, dict) else {}
    return {
        key: float(value)
        for key, value in known.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    }


@dataclass(frozen=True)
class ServingFacts:
    """Serving facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading

    @cached_property
    def files(self) -> Mapping[str, FileState]:
        """Mode, owner and hash of each existing file of ours."""
        return managed_file.parse_hashes(FILES, self.reading.text(FILES))

    @cached_property
    def leases(self) -> frozenset[str]:
        """The files whose content has the form of a lease secret."""
        lines = self.reading.text(LEASES).splitlines()
        for line in lines:
            if not _LEASE.fullmatch(line):
                raise ValueError(f"{LEASES}: unexpected probe output {line[:80]!r}")
        return frozenset(lines)

    @cached_property
    def _services_by_kind(self) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, dict[str, str]] = {"folder": {}, "running": {}}
        for line in self.reading.text(SERVICES).splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "folder" and (words := rest.rsplit(" ", 1))[-1].startswith("/"):
                found[kind][words[-1]] = words[0]
            elif kind == "running" and _SERVICE.fullmatch(rest):
                found[kind][rest] = ""
            else:
                raise ValueError(f"{SERVICES}: unexpected probe output {line[:80]!r}")
        return found

    @property
    def folders(self) -> Mapping[str, str]:
        """Mode and owner of each existing folder of ours."""
        return self._services_by_kind["folder"]

    def runs(self, service: str) -> bool:
        """Whether a service has processes."""
        return service in self._services_by_kind["running"]

    @cached_property
    def _systemd_units(self) -> Mapping[str, SystemdUnit]:
        return parse_units(UNITS, self.reading.text(UNITS), ())

    def systemd_units(self, names: Iterable[str]) -> dict[str, SystemdUnit]:
        """These systemd units of served units; one that the node has no file of is not found."""
        return {name: self._systemd_units.get(name, _NOT_FOUND) for name in names}

    @cached_property
    def _records_by_unit(self) -> Mapping[str, str]:
        found = {}
        for line in self.reading.text(RECORDS).splitlines():
            if not (match := _RECORD.fullmatch(line)):
                raise ValueError(f"{RECORDS}: unexpected probe output {line[:80]!r}")
            found[match[1]] = match[2]
        return found

    def record(self, unit: str) -> CoordinatorRecord:
        """What the coordinator of a unit keeps here. Raises ValueError for a file that it did not write."""
        if unit not in self._records_by_unit:
            return CoordinatorRecord()
        services = f"{desired.unit_service(unit, '-coordinator')} {desired.unit_service(unit, '-agent')}"
        fault = (
            f"{RECORDS}: {STATE_FOLDER}/{unit}.json is not the record of a coordinator; stop coordinator and agents on "
            "all "
            f"nodes (`systemctl stop {services}`), remove the file, and run again"
        )
        try:
            values = json.loads(base64.b64decode(self._records_by_unit[unit], validate=True))
        except (binascii.Error, ValueError, RecursionError):
            raise ValueError(fault) from None
        if not isinstance(values, dict) or values.get("name") != unit:
            raise ValueError(fault)
        desired_state, state, reason = values.get("desired_state"), values.get("state"), values.get("reason")
        if desired_state not in ("up", "down") or state not in STATES or not isinstance(reason, str):
            raise ValueError(fault)
        return CoordinatorRecord(
            desired_state, state, reason, _keep_numbers(values.get("figures")), str(values.get("cause", ""))
        )

    @cached_property
    def _container_rows(self) -> Sequence[re.Match[str]]:
        found = []
        for line in self.reading.text(CONTAINERS).splitlines():
            if line == "unknown":
                raise ValueError(f"{CONTAINERS}: docker does not list its containers; see `systemctl status docker`")
            if not (match := _CONTAINER.fullmatch(line)):
                raise ValueError(f"{CONTAINERS}: unexpected probe output {line[:80]!r}")
            found.append(match)
        return found

    def started_with(self, unit: str) -> frozenset[str]:
        """The hashes of the arguments with which the service of a rank runs `docker run`, as of the file of them."""
        return frozenset(match["hash"] for match in self._container_rows if match["ran"] == unit)

    def lacking(self, unit: str) -> tuple[str, ...]:
        """The variables of the file of a unit that its container does not have with these values."""
        return tuple(match["variable"] for match in self._container_rows if match["env"] == unit)

    def container(self, unit: str) -> str:
        """The state of the container with the name of a unit, empty without one."""
        return next((match["state"] for match in self._container_rows if match["named"] == unit), "")

    def whole(self) -> ServingFacts:
        """The same, after a look at all of it but the records. No unit changes beside a gateway that is unknown."""
        gateway_facts.GatewayFacts(self.reading).whole()
        _ = (
            self.files,
            self.leases,
            self._services_by_kind,
            self._systemd_units,
            self._records_by_unit,
            self._container_rows,
        )
        return self

    @cached_property
    def installed(self) -> Mapping[str, list[str]]:
        """The units of which the node has files, each with their paths."""
        found: dict[str, list[str]] = {}
        for path in self.files:
            if match := _OWN.fullmatch(path):
                found.setdefault(next(filter(None, match.groups())), []).append(path)
        # A slice alone may belong to another program.
        return {name: paths for name, paths in found.items() if not all(path.endswith(".slice") for path in paths)}
