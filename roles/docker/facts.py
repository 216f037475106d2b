"""Facts of a node about its docker, and their comparison with the rack."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from core.model import Rack
from core.ops import host_facts
from core.ops.announce import managed_file_changes
from core.ops.managed_service import ManagedService, ServiceState
from core.probes import systemd_units
from core.probes.systemd_units import SystemdUnit
from core.util.managed_file import ManagedFile
from roles.docker import containers, desired, json_edit, scripts, services
from roles.docker.options import DockerOptions
from serving import running_engines as running_units

ENGINE = "docker-engine"
UNITS = "docker-units"
CONTAINERS = "docker-containers"
USERS = "docker-users"

_UNIT_NAMES = tuple(unit for service in services.SERVICES for unit in service.units)

host_facts.register(
    "docker",
    host_facts.Probe(
        files=(desired.CONFIG, desired.DROPIN),
        commands={
            ENGINE: scripts.ENGINE,
            UNITS: systemd_units.show_units(_UNIT_NAMES),
            CONTAINERS: scripts.CONTAINERS,
            USERS: scripts.USERS,
            running_units.FACT: running_units.PROBE,
        },
    ),
)

Act = Literal["start", "restart", "reload"]


@dataclass(frozen=True)
class DockerFacts:
    """Docker facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack

    @cached_property
    def _reported_values(self) -> Mapping[str, list[str]]:
        reported: dict[str, list[str]] = {}
        for line in self.reading.text(ENGINE).splitlines():
            what, _, value = line.partition(" ")
            if what not in _LINES or not (value or what == "with"):
                raise ValueError(f"{ENGINE}: unexpected probe output {line[:80]!r}")
            reported.setdefault(what, []).append(value)
        return reported

    def _single_value(self, what: str) -> str | None:
        values = self._reported_values.get(what, [])
        return values[0] if values else None

    @cached_property
    def text(self) -> str:
        """The daemon.json; an empty text when there is none."""
        if self.reading.content(desired.CONFIG) is None:
            return ""
        return self.reading.text(desired.CONFIG)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Parsed daemon.json."""
        return dict(_name_file_in_error(desired.CONFIG, lambda: json_edit.parse(self.text)))

    @cached_property
    def after(self) -> str:
        """The desired daemon.json, without the additions of NVIDIA's tool."""
        return str(
            _name_file_in_error(desired.CONFIG, lambda: desired.edited(self.text, self.rack.options(DockerOptions)))
        )

    @cached_property
    def mode(self) -> str | None:
        """Problem of owner, mode and kind of the daemon.json, or None."""
        stat = self._single_value("stat")
        return desired.mode_fault(stat) if stat else None

    @property
    def new_mode(self) -> str:
        """Its mode after the run."""
        return desired.mode_of(self._single_value("stat"))

    @cached_property
    def nvidia(self) -> bool:
        """Whether NVIDIA's runtime must be added."""
        return (
            "nvidia-ctk" in self._reported_values
            and _name_file_in_error(desired.CONFIG, lambda: desired.at(self.config, desired.NVIDIA)) is None
        )

    @property
    def writes(self) -> bool:
        """Whether the daemon.json must be written."""
        return self.text != self.after or self.nvidia or self.mode is not None

    @property
    def installed(self) -> bool:
        """Whether an engine is installed."""
        return "dockerd" in self._reported_values

    @property
    def packages(self) -> list[str]:
        """The packages that make one, of those that apt knows; docker-ce if it can be had."""
        known = self._reported_values.get("candidate", [])
        family = ("docker-ce", "docker-ce-cli") if "docker-ce" in known else ("docker.io", "docker-cli")
        return [name for name in family if name in known] if family[0] in known else []

    @cached_property
    def units(self) -> Mapping[str, SystemdUnit]:
        """The units of the engine, by name."""
        return systemd_units.parse_units(UNITS, self.reading.text(UNITS), _UNIT_NAMES)

    def state(self, service: ManagedService) -> ServiceState:
        """Return a service of this role as the node has it."""
        files = [ManagedFile(path, desired.dropin(self.rack.rack)) for path in service.paths]
        before = {path: self.reading.content(path) for path in service.paths}
        stale = [file for file in files if before[file.path] != file.content]
        return ServiceState(
            {unit: self.units[unit] for unit in service.units},
            managed_file_changes(stale, before),
            there=any(content is not None for content in before.values()),
        )

    @property
    def engine_unit(self) -> SystemdUnit:
        """The unit of the engine."""
        return self.units[services.ENGINE.units[0]]

    @cached_property
    def command(self) -> list[str]:
        """Command line of the running dockerd; empty when none runs."""
        line = self._single_value("command")
        words = _decode_base64(line).decode("utf-8", "surrogateescape").split("\0")[:-1] if line else []
        if line and not words:
            raise ValueError(f"{ENGINE}: the command line of dockerd is empty")
        return words

    @cached_property
    def started(self) -> Mapping[str, Any] | None:
        """The daemon.json that the running dockerd runs with; None when that is not known."""
        line = self._single_value("with")
        if line is None:
            return None
        try:
            return json_edit.parse(_decode_base64(line).decode("utf-8", "replace"))
        except ValueError:
            # Written when /run was full, or by another program: dockerd would not have started with it.
            return None

    @property
    def last(self) -> str | None:
        """The id of the start that a daemon.json is kept for."""
        return self._single_value("start") if self.started is not None else None

    @cached_property
    def pending(self) -> list[desired.Path]:
        """Our settings that the running dockerd does not have yet."""
        if self.started is None:
            return []
        started = self.started
        found = list(desired.differences(started, self.rack.options(DockerOptions)))
        has_tool = "nvidia-ctk" in self._reported_values
        return found + ([desired.NVIDIA] if has_tool and desired.at(started, desired.NVIDIA) is None else [])

    @cached_property
    def act(self) -> Act | None:
        """Action that the engine needs in order to run with these settings."""
        if not self.engine_unit.settled:
            return "restart" if self.engine_unit.running else "start"
        if self.started is None or set(self.pending) - desired.RELOADED:
            return "restart"
        return "reload" if self.pending else None

    @cached_property
    def reason(self) -> str:
        """Reason for `act`, as shown in the plan."""
        if not self.engine_unit.settled:
            return "it does not run" if self.installed else "it is new"
        if self.started is None:
            return "it is not known which daemon.json it was started with"
        return ", ".join(" ".join(path) for path in self.pending)

    @cached_property
    def running(self) -> list[containers.Container]:
        """Running containers and build steps."""
        return containers.running(self.reading.text(CONTAINERS))

    @property
    def must_be_idle(self) -> bool:
        """Whether no container may run while the engine is started: it would be ended, and rack.yaml forbids that."""
        idle = self.rack.options(DockerOptions).restart == "idle"
        return self.act in ("start", "restart") and not self._restores_containers and idle

    @cached_property
    def _restores_containers(self) -> bool:
        """Whether containers survive the start. A dockerd without live-restore also ends those that it finds."""
        does = self.started is not None and desired.at(self.started, desired.LIVE) is True
        return self.rack.options(DockerOptions).live_restore and (does or not self.engine_unit.settled)

    @cached_property
    def victims(self) -> list[containers.Container]:
        """Containers that the action would end."""
        return self.running if self.act in ("start", "restart") and not self._restores_containers else []

    @cached_property
    def unit_blockers(self) -> list[str]:
        """Why the engine must not be started or restarted: a rank is a client of docker, so that it ends with any
        restart, also where containers survive it.
        """
        units = running_units.parse_running_units(self.reading.text(running_units.FACT))
        if self.act not in ("start", "restart"):
            return []
        return running_units.unit_blockers(self.rack, units, f"docker must be {self.act}ed ({self.reason})")

    @property
    def limits(self) -> dict[containers.Container, int]:
        """Containers that get a limit."""
        return containers.limits(self.running, self.rack.options(DockerOptions))

    @cached_property
    def apart(self) -> str | None:
        """What the rack's user lacks to use docker, or None."""
        return desired.missing_group_membership(self.rack.access.user, self.reading.text(USERS))

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not change this node. Reads everything: an unknown fact is reported before any change."""
        self.running, self.apart, self.after, self.mode, self.nvidia, self.pending, self.units, self.unit_blockers  # noqa: B018
        faults = desired.flags_in_the_way(self.command)
        cgroup = self._single_value("cgroup")
        if cgroup and not cgroup.endswith("/docker.service"):
            faults.append(f"dockerd runs in {cgroup.partition('::')[2]}, not as docker.service; stop that one first")
        if not self.installed and not self.packages:
            faults.append(
                "no engine is installed, and apt knows neither docker-ce nor docker.io; is a repository there?"
            )
        if self.rack.options(DockerOptions).live_restore and "swarm" in self._reported_values:
            faults.append(
                "docker.live_restore: this node is in a docker swarm, with which docker does not start then; "
                "take it out (docker swarm leave), or write live_restore: false"
            )
        faults += self.unit_blockers
        others = [one for one in self.victims if running_units.unit_of_cgroup(one.path) is None]
        if others and self.must_be_idle:
            names = [one.short for one in others]
            some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            word = "containers run" if len(names) > 1 else "container runs"
            faults.append(
                f"docker must be {self.act}ed ({self.reason}), and {len(names)} {word} that would die of it ({some}); "
                "stop them, or write docker.restart: always"
            )
        return faults


_LINES = (
    "dockerd",
    "nvidia-ctk",
    "candidate",
    "swarm",
    "stat",
    "cgroup",
    "command",
    "start",
    "with",
)


def _decode_base64(line: str) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except binascii.Error:
        raise ValueError(f"{ENGINE}: unexpected probe output {line[:60]!r}") from None


def _name_file_in_error(file: str, do: Callable[[], Any]) -> Any:
    """Return the result of `do`; a ValueError names the file."""
    try:
        return do()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
