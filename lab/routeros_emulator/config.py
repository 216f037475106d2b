"""The emulator's configuration file (JSON): the unit, its cables, and the paths of its files."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, ValidationError, model_validator

from lab.routeros_emulator.link_modes import LANES
from lab.routeros_emulator.ports import CRS812, MODELS, EmulatedModel

Number = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0, le=3600)]


class EmulatorConfigError(Exception):
    """The configuration cannot be used; its text has one line per error."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# claim: switch.cables.tail-order
class CableTail(_Model):
    """One end of a breakout cable: the lanes it has, what its peer runs (Gb/s), and the wires behind it.

    ``fec`` is the FEC that the peer runs; without it, the peer follows that of the switch.
    ``state_file`` is the node's hardware state, a JSON file that the lab owns; the emulator keeps only its
    ``links`` key, by ``port``. ``taps`` are the node's fabric interfaces on this machine; ``macs``
    are the addresses it is heard with where there are no taps to hear it on.
    """

    lane: Annotated[int, Field(ge=1, le=8)]
    lanes: Literal[1, 2, 4, 8]
    gbps: Literal[1, 10, 25, 40, 50, 100, 200, 400]
    node: str
    port: Annotated[int, Field(ge=0, le=1)]
    taps: tuple[str, ...] = ()
    macs: tuple[Annotated[str, Field(pattern=r"^[0-9A-F]{2}(:[0-9A-F]{2}){5}$")], ...] = ()
    state_file: Path | None = None
    fec: Literal["off", "fec74", "fec91"] | None = None


class EmulatedCable(_Model):
    """The cable in a cage: a copper (DAC) or optical cable with one or more tails."""

    cage: str
    medium: Literal["copper", "optic"] = "copper"
    tails: tuple[CableTail, ...] = ()

    @model_validator(mode="after")
    def _check_lanes(self) -> EmulatedCable:
        used = Counter(lane for tail in self.tails for lane in range(tail.lane, tail.lane + tail.lanes))
        if twice := sorted(lane for lane, count in used.items() if count > 1):
            raise ValueError(f"lane {twice[0]} of {self.cage} is in two tails")
        return self

    def check(self, model: EmulatedModel) -> None:
        """Raise ValueError unless the model has the cage, with as many lanes as the tails reach."""
        kind = model.cages.get(self.cage)
        if kind is None:
            raise ValueError(f"there is no cage {self.cage}; a {model.title} has {', '.join(model.cages)}")
        last = max((tail.lane + tail.lanes - 1 for tail in self.tails), default=0)
        if last > LANES[kind]:
            raise ValueError(f"{self.cage} has {LANES[kind]} lanes, a tail reaches lane {last}")


class User(_Model):
    """A user that exists on first start. The file's last newline is not part of the password."""

    name: str
    group: Literal["full", "read", "write"] = "full"
    password_file: Path


class SwitchConfig(_Model):
    """Everything ``python -m lab.routeros_emulator`` needs.

    Port 0 lets the system choose; the ready line has the real ones. ``www_port`` and ``www_ssl_port`` are REST's;
    without them there is none. A configured certificate is in /certificate, and api-ssl presents it, from the first
    start on. ``boxed``: the unit is in factory state, with only the user ``admin``, whose password is on the sticker,
    and without a certificate.

    ``bridge`` is the Linux bridge that plays the fabric; without one no wires are touched. ``settle`` is how
    long (s) a restarted cage takes to come up: 8 to 40 s are reported from real units. ``unroll_delay`` is how
    long (s) safe mode outlives a lost session. ``model`` is what its board says, which decides the ports;
    ``version`` and ``packages`` are what the unit claims to run, and ``firmware`` is its boot loader's version when
    that is another one. Clients of the networks ``let_in``
    are accepted whatever /ip/service says.

    ``keeps_full_user``: the last user of the group full can be neither removed nor disabled.

    ``schedules``: what rows of /system/scheduler run. ``release``: those that the version runs; ``never``: none;
    ``not-after-restart``: all, but rows with ``start-time=startup`` and an interval only until the unit restarts, as
    one public kit says. ``keeps_next_run``: a schedule with a date keeps its next run when the clock is set.
    ``first_run``: seconds until the first run of a row with ``start-time=startup`` and an interval, in place of the
    interval, for tests that do not wait. ``ntp_moves``: seconds by which the first time server moves the clock.

    ``device_mode`` ``home`` has no scheduler, and a ``flagged`` unit neither that nor scripts.

    ``free_space`` are the bytes of its flash for files. A restart begins ``restarts_after`` seconds after its command
    and takes ``away`` seconds; package files are installed by any restart, or with ``installs_on`` only by that of
    ``/system/package/apply-changes``.

    ``follow``: the unit is reachable at the addresses in /ip/address, and not at ``address``; all of its services have
    the same ports there. ``link`` is the link of this machine that gets these addresses.
    """

    address: IPvAnyAddress
    state: Path
    log: Path
    api_port: Number = 8728
    tls_port: Number = 8729
    www_port: Number | None = None
    www_ssl_port: Number | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    control: Path | None = None
    bridge: str | None = None
    identity: str = "MikroTik"
    serial: str = "HK70AB12CD3"
    version: Annotated[str, Field(pattern=r"^\d+\.\d+")] = "7.24.6 (long-term)"
    firmware: str | None = None
    model: str = CRS812.board
    packages: tuple[str, ...] = ("routeros", "switch-marvell")
    management: IPv4Interface = IPv4Interface("192.168.88.1/24")
    users: tuple[User, ...] = ()
    boxed: bool = False
    let_in: tuple[IPv4Network, ...] = ()
    free_space: Annotated[int, Field(ge=0)] = 256 * 1024**2
    restarts_after: Seconds = 0.0
    away: Seconds = 0.3
    installs_on: Literal["reboot", "apply-changes"] = "reboot"
    device_mode: Literal["advanced", "basic", "home", "rose"] = "advanced"
    flagged: bool = False
    keeps_full_user: bool = False
    schedules: Literal["release", "never", "not-after-restart"] = "release"
    keeps_next_run: bool = False
    first_run: Seconds | None = None
    ntp_moves: float = 0.0
    follow: bool = False
    link: str | None = None
    settle: Seconds = 1.0
    unroll_delay: Seconds = 0.0
    cables: tuple[EmulatedCable, ...] = ()

    @property
    def hardware(self) -> EmulatedModel:
        """The ports that a unit of the model has."""
        return MODELS[self.model]

    @model_validator(mode="after")
    def _check_consistency(self) -> SwitchConfig:
        if self.model not in MODELS:
            raise ValueError(f"there is no model {self.model}; known are {', '.join(MODELS)}")
        for cable in self.cables:
            cable.check(self.hardware)
        for label, names in (
            ("cage", [cable.cage for cable in self.cables]),
            ("user", [user.name for user in self.users]),
            ("tap", [tap for cable in self.cables for tail in cable.tails for tap in tail.taps]),
        ):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise ValueError(f"{label} {twice[0]} is given twice")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together")
        if self.link is not None and not self.follow:
            raise ValueError("link is for a unit that follows /ip/address")
        if self.boxed and ([user.name for user in self.users] != ["admin"] or self.tls_cert is not None):
            raise ValueError("a boxed unit has the user admin, no other, and no certificate")
        return self


def read(path: Path) -> SwitchConfig:
    """Read and check a configuration file. Raises EmulatorConfigError with ``file: key: what is wrong`` lines."""
    try:
        return SwitchConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise EmulatorConfigError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, fault['loc'])) or 'config'}: {fault['msg']}" for fault in error.errors()]
        raise EmulatorConfigError("\n".join(lines)) from None
