"""What a node says of its docker, and whether that is what the rack wants."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from roles.docker import containers, layout, scripts, state
from sparkrack.fleet import Rack
from sparkrack.ops import probe

ENGINE = "docker-engine"
CONTAINERS = "docker-containers"
USERS = "docker-users"

probe.register(
    "docker",
    probe.Probe(
        files=(state.CONFIG, state.DROPIN),
        commands={ENGINE: scripts.ENGINE, CONTAINERS: scripts.CONTAINERS, USERS: scripts.USERS},
    ),
)

Act = Literal["start", "restart", "reload"]


@dataclass(frozen=True)
class View:
    """Docker on a node as it was read. Raises UnknownError or ValueError where it cannot be told."""

    rack: Rack
    reading: probe.Reading

    @cached_property
    def _said(self) -> Mapping[str, list[str]]:
        said: dict[str, list[str]] = {}
        for line in self.reading.text(ENGINE).splitlines():
            what, _, value = line.partition(" ")
            if what not in _LINES or not (value or what == "with"):
                raise ValueError(f"{ENGINE}: cannot be told from {line[:80]!r}")
            said.setdefault(what, []).append(value)
        return said

    def _one(self, what: str) -> str | None:
        values = self._said.get(what, [])
        return values[0] if values else None

    @cached_property
    def text(self) -> str:
        """The daemon.json; an empty text when there is none."""
        if self.reading.content(state.CONFIG) is None:
            return ""
        return self.reading.text(state.CONFIG)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """What it says."""
        return dict(_of(state.CONFIG, lambda: layout.parse(self.text)))

    @cached_property
    def after(self) -> str:
        """What the daemon.json shall be, but for what NVIDIA's tool adds."""
        return str(_of(state.CONFIG, lambda: state.edited(self.text, self.rack.docker)))

    @cached_property
    def mode(self) -> str | None:
        """What of owner, mode and kind of the daemon.json is not right."""
        stat = self._one("stat")
        return state.mode_fault(stat) if stat else None

    @property
    def new_mode(self) -> str:
        """What its mode will be."""
        return state.mode_of(self._one("stat"))

    @cached_property
    def nvidia(self) -> bool:
        """Whether NVIDIA's runtime must be added."""
        return "nvidia-ctk" in self._said and _of(state.CONFIG, lambda: state.at(self.config, state.NVIDIA)) is None

    @property
    def writes(self) -> bool:
        """Whether the daemon.json must be written."""
        return self.text != self.after or self.nvidia or self.mode is not None

    @property
    def installed(self) -> bool:
        """Whether there is an engine."""
        return "dockerd" in self._said

    @property
    def packages(self) -> list[str]:
        """The packages that make one, of those that apt knows; docker-ce if it can be had."""
        known = self._said.get("candidate", [])
        family = ("docker-ce", "docker-ce-cli") if "docker-ce" in known else ("docker.io", "docker-cli")
        return [name for name in family if name in known] if family[0] in known else []

    @property
    def masked(self) -> list[str]:
        """Links that forbid systemd to start a unit that docker needs."""
        return self._said.get("masked", [])

    @property
    def enabled(self) -> bool:
        """Whether it starts at boot."""
        return "enabled" in self._said

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return "command" in self._said

    @cached_property
    def command(self) -> list[str]:
        """How the running dockerd was called; empty when none runs."""
        line = self._one("command")
        words = _decoded(line).decode("utf-8", "surrogateescape").split("\0")[:-1] if line else []
        if line and not words:
            raise ValueError(f"{ENGINE}: the command line of dockerd is empty")
        return words

    @cached_property
    def started(self) -> Mapping[str, Any] | None:
        """The daemon.json that the running dockerd runs with; None when that is not known."""
        line = self._one("with")
        if line is None:
            return None
        try:
            return layout.parse(_decoded(line).decode("utf-8", "replace"))
        except ValueError:
            # Written when /run was full, or by somebody else: dockerd would not have started with it.
            return None

    @property
    def last(self) -> str | None:
        """The id of the start that a daemon.json is kept for."""
        return self._one("start") if self.started is not None else None

    @cached_property
    def pending(self) -> list[state.Path]:
        """Our settings that the running dockerd does not have yet."""
        if self.started is None:
            return []
        started = self.started
        found = list(state.differences(started, self.rack.docker))
        has_tool = "nvidia-ctk" in self._said
        return found + ([state.NVIDIA] if has_tool and state.at(started, state.NVIDIA) is None else [])

    @cached_property
    def act(self) -> Act | None:
        """What the engine needs so that it runs, and with these settings."""
        if not self.runs:
            return "start"
        if self.started is None or set(self.pending) - state.RELOADED:
            return "restart"
        return "reload" if self.pending else None

    @cached_property
    def reason(self) -> str:
        """Why."""
        if not self.runs:
            return "it does not run" if self.installed else "it is new"
        if self.started is None:
            return "it is not known which daemon.json it was started with"
        return ", ".join(" ".join(path) for path in self.pending)

    @cached_property
    def running(self) -> list[containers.Container]:
        """What runs in docker."""
        return containers.running(self.reading.text(CONTAINERS))

    @property
    def must_be_idle(self) -> bool:
        """Whether nothing may run in docker while the engine is started: it would die, and rack.yaml forbids that."""
        return self.act in ("start", "restart") and not self._restores and self.rack.docker.restart == "idle"

    @cached_property
    def _restores(self) -> bool:
        """Whether containers outlive the start. A dockerd without live-restore ends what it finds, too."""
        does = self.started is not None and state.at(self.started, state.LIVE) is True
        return self.rack.docker.live_restore and (does or not self.runs)

    @cached_property
    def victims(self) -> list[containers.Container]:
        """What would die of it."""
        return self.running if self.act in ("start", "restart") and not self._restores else []

    @property
    def limits(self) -> dict[containers.Container, int]:
        """The containers that get a limit."""
        return containers.limits(self.running, self.rack.docker)

    @cached_property
    def apart(self) -> str | None:
        """What the rack's user lacks to use docker."""
        return state.apart(self.rack.access.user, self.reading.text(USERS))

    @property
    def stale(self) -> bool:
        """Whether the drop-in is not as it shall be."""
        return self.reading.content(state.DROPIN) != state.dropin(self.rack.rack)

    @property
    def right(self) -> bool:
        """Whether there is nothing to do for the engine."""
        return not any((not self.installed, self.masked, not self.enabled, self.stale, self.writes, self.act))

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not touch this node. Looks at everything: what is unknown shows before any change."""
        self.running, self.apart, self.after, self.mode, self.nvidia, self.pending  # noqa: B018
        faults = state.flags_in_the_way(self.command)
        cgroup = self._one("cgroup")
        if cgroup and not cgroup.endswith("/docker.service"):
            faults.append(f"dockerd runs in {cgroup.partition('::')[2]}, not as docker.service; stop that one first")
        if not self.installed and not self.packages:
            faults.append(
                "no engine is installed, and apt knows neither docker-ce nor docker.io; is a repository there?"
            )
        if self.rack.docker.live_restore and "swarm" in self._said:
            faults.append(
                "docker.live_restore: this node is in a docker swarm, with which docker does not start then; "
                "take it out (docker swarm leave), or write live_restore: false"
            )
        if self.victims and self.must_be_idle:
            names = [one.short for one in self.victims]
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
    "enabled",
    "masked",
    "swarm",
    "stat",
    "cgroup",
    "command",
    "start",
    "with",
)


def _decoded(line: str) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except binascii.Error:
        raise ValueError(f"{ENGINE}: cannot be told from {line[:60]!r}") from None


def _of(file: str, do: Callable[[], Any]) -> Any:
    """What `do` gives; its ValueError names the file."""
    try:
        return do()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
