"""Facts of a node about the gateway: its files by their hashes, its certificate, nginx, its service and its router."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.ops.managed_service import ManagedService, ServiceState
from core.probes.protocol import Reading
from core.probes.systemd_units import parse_units
from core.util import managed_file, resources
from core.util.managed_file import FileState, ManagedFile
from serving import gateway as gateway
from serving.services import GATEWAY, SERVICES, UNITS

FILES = "serving-gateway-files"
STATE = "serving-gateway-state"
_STATE = re.compile(r"(folder|nginx|certificate|closed|pending)(?: ([A-Za-z0-9+/=:_. -]+))?")

COMMANDS: Mapping[str, str] = {
    FILES: managed_file.probe_hashes(path for service in SERVICES for path in (*service.paths, *service.leftovers)),
    # The certificate is public; of the private key the node only says whether it belongs to it.
    STATE: resources.shell_text(
        "serving",
        "templates/gateway-state.sh",
        folder=gateway.FOLDER,
        run=gateway.RUN,
        nginx=gateway.NGINX,
        certificate=gateway.CERTIFICATE,
        marks=" ".join(service.mark for service in SERVICES),
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
    def _state_by_key(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in self.reading.text(STATE).splitlines():
            if not (match := _STATE.fullmatch(line)):
                raise ValueError(f"{STATE}: unexpected probe output {line[:80]!r}")
            found.setdefault(match[1], []).append(match[2] or "")
        return found

    @property
    def folder(self) -> str:
        """Mode and owner of the folder; empty if there is none."""
        return "".join(self._state_by_key.get("folder", []))

    @property
    def nginx(self) -> bool:
        """Whether nginx is installed."""
        return "nginx" in self._state_by_key

    @property
    def closed(self) -> list[str]:
        """The units for which the gateway is closed."""
        return self._state_by_key.get("closed", [])

    @property
    def certificate(self) -> bytes:
        """The first certificate in PEM, if it belongs to the private key beside it; else empty."""
        try:
            return base64.b64decode("".join(self._state_by_key.get("certificate", [])), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{STATE}: the certificate is garbled") from None

    def service(self, service: ManagedService, files: Iterable[ManagedFile] = ()) -> ServiceState:
        """Return a service of the gateway as the node has it; `files`: its desired ones. Content is never shown."""
        stale = managed_file.differing(files, self.files)
        return ServiceState(
            units=parse_units(UNITS, self.reading.text(UNITS), service.units),
            files=tuple(zip(stale, managed_file.changes(stale, self.files), strict=True)),
            there=any(path in self.files for path in (*service.paths, *service.leftovers)),
            pending=posixpath.basename(service.mark) in self._state_by_key.get("pending", []),
        )

    def whole(self) -> GatewayFacts:
        """The same, after a look at all of it."""
        _ = self.files, self._state_by_key, self.certificate, self.service(GATEWAY)
        return self
