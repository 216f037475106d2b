"""Facts of a node about the gateway: its files by their hashes, its certificate, nginx, its service and its router."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from core.ops.managed_service import ServiceState
from core.probes.protocol import Reading
from core.probes.systemd_units import parse_units, show_units
from core.util import managed_file, resources
from core.util.managed_file import FileState, ManagedFile
from serving import desired
from serving import gateway as gateway
from serving.services import ROUTER

FILES = "serving-gateway-files"
STATE = "serving-gateway-state"
UNITS = "serving-gateway-units"
_STATE = re.compile(r"(folder|nginx|running|enabled|certificate|closed|router_pending)(?: ([A-Za-z0-9+/=:_ ]+))?")

COMMANDS: Mapping[str, str] = {
    FILES: managed_file.probe_hashes((*gateway.PATHS, *ROUTER.paths)),
    UNITS: show_units(ROUTER.units),
    # The certificate is public; of the private key the node only says whether it belongs to it.
    STATE: resources.shell_text(
        "serving",
        "templates/gateway-state.sh",
        folder=gateway.FOLDER,
        run=gateway.RUN,
        nginx=gateway.NGINX,
        service=gateway.SERVICE,
        units=desired.UNITS,
        certificate=gateway.CERTIFICATE,
        router_mark=ROUTER.mark,
    ),
}


@dataclass(frozen=True)
class GatewayFacts:
    """Properties raise UnknownError or ValueError for unknown facts."""

    reading: Reading

    @cached_property
    def files(self) -> Mapping[str, FileState]:
        """Mode, owner and hash of each existing file of the gateway."""
        return managed_file.parse_hashes(FILES, self.reading.text(FILES))

    @cached_property
    def _state(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in self.reading.text(STATE).splitlines():
            if not (match := _STATE.fullmatch(line)):
                raise ValueError(f"{STATE}: unexpected probe output {line[:80]!r}")
            found.setdefault(match[1], []).append(match[2] or "")
        return found

    @property
    def folder(self) -> str:
        """Mode and owner of the folder; empty if there is none."""
        return "".join(self._state.get("folder", []))

    @property
    def nginx(self) -> bool:
        """Whether nginx is installed."""
        return "nginx" in self._state

    @property
    def running(self) -> bool:
        """Whether the service has processes."""
        return "running" in self._state

    @property
    def enabled(self) -> bool:
        """Whether the service starts at boot."""
        return "enabled" in self._state

    @property
    def closed(self) -> list[str]:
        """The units for which the gateway is closed."""
        return self._state.get("closed", [])

    @property
    def certificate(self) -> bytes:
        """The first certificate in PEM, if it belongs to the private key beside it; else empty."""
        try:
            return base64.b64decode("".join(self._state.get("certificate", [])), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{STATE}: the certificate is garbled") from None

    def router(self, files: tuple[ManagedFile, ...] = ()) -> ServiceState:
        """Return the service of the router as the node has it; `files`: its desired files."""
        stale = managed_file.differing(files, self.files)
        return ServiceState(
            units=parse_units(UNITS, self.reading.text(UNITS), ROUTER.units),
            files=tuple(zip(stale, managed_file.changes(stale, self.files), strict=True)),
            there=any(path in self.files for path in ROUTER.paths),
            pending="router_pending" in self._state,
        )

    def whole(self) -> GatewayFacts:
        """The same, after a look at all of it."""
        _ = self.files, self._state, self.certificate, self.router()
        return self
