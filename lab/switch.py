"""One emulated switch: its folder, and the process that is it."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from core.model.fields import PLAIN_API_PORT, TLS_API_PORT
from core.util.project_files import PACKAGES
from lab import certificate, private_file
from lab import namespace as ns
from lab.errors import LabError
from lab.layout import FABRIC, FROM_THE_BOX, Layout
from lab.node import VirtualNode
from lab.paths import LabPaths
from lab.routeros_emulator.config import CableTail, EmulatedCable, SwitchConfig, User

START_SECONDS = 30


@dataclass(frozen=True)
class VirtualSwitch:
    """A switch of the lab, by the name it has in rack.yaml."""

    name: str
    layout: Layout
    paths: LabPaths

    @property
    def folder(self) -> Path:
        """Everything of this switch."""
        return self.paths.switch(self.name)

    @property
    def password(self) -> Path:
        """The file with the password of the operator's user."""
        return self.folder / "password"

    @property
    def reader(self) -> Path:
        """The file with the password of the user that only reads."""
        return self.folder / "reader"

    @property
    def sticker(self) -> Path:
        """The file with the password that `admin` has when the switch comes out of its box."""
        return self.folder / "sticker"

    @property
    def log(self) -> Path:
        """Log of the switch, one JSON line a sentence."""
        return self.folder / "log.ndjson"

    @property
    def control(self) -> Path:
        """The socket for stats and faults."""
        return self.folder / "control"

    @property
    def made(self) -> bool:
        """Whether this switch was prepared before."""
        return self._config_file.exists()

    @property
    def in_factory_state(self) -> bool:
        """Whether its factory state is that of a real switch, and not the lab's, which the operator can log in to."""
        return self.made and bool(json.loads(self._config_file.read_text())["boxed"])

    def box(self, serial: str | None = None) -> None:
        """Bring the switch to factory state; with `serial` it is another unit, with a sticker of its own."""
        if serial:
            self.sticker.unlink(missing_ok=True)
            self._replaced_serial_file.write_text(serial + "\n")
        self.prepare(factory=True)

    def prepare(self, *, factory: bool = False) -> None:
        """Write the configuration, and once its certificate and random passwords. One in factory state stays so.

        `factory`: the switch starts with `--factory`, in factory state: only `admin` with the sticker's password, and
        its operator has yet to create a certificate. A start without `--factory` continues from the saved state in
        either case.
        """
        factory = factory or self.in_factory_state
        self.folder.mkdir(parents=True, exist_ok=True)
        own = (self.reader,) if factory else (self.password, self.reader)
        for path in own:
            private_file.make(path, secrets.token_urlsafe(24) + "\n")
        private_file.make(self.sticker, secrets.token_hex(5) + "\n")
        if not self._certificate_file.exists():
            certificate.make(self.name, self._certificate_file, self._key_file)
        self._config_file.write_text(self._make_configuration(factory=factory).model_dump_json(indent=1))

    def fingerprint(self) -> str:
        """SHA-256 of the certificate (DER), as rack.yaml wants it."""
        return certificate.fingerprint(self._certificate_file)

    def pids(self) -> list[int]:
        """The process of this switch; empty when it is not running."""
        return ns.matching(self.paths.namespace, str(self._config_file))

    def start(self, factory: bool = False) -> None:
        """Start the switch and wait until it listens. Raises LabError with its output when it does not."""
        output = self.folder / "output.log"
        command = ["ip", "netns", "exec", self.paths.namespace, sys.executable, "-m", "lab.routeros_emulator"]
        command += ["--config", str(self._config_file), *(["--factory"] if factory else [])]
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd=PACKAGES
            )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if b"\n" in output.read_bytes() and process.poll() is None:
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise LabError(f"the emulated switch {self.name} does not start:\n{output.read_text(errors='replace')}")

    def stop(self) -> None:
        """Cut the power."""
        ns.end(self.pids(), grace=3.0)

    @property
    def _replaced_serial_file(self) -> Path:
        """The serial number of a unit that replaced the first one."""
        return self.folder / "serial"

    @property
    def _config_file(self) -> Path:
        return self.folder / "config.json"

    @property
    def _certificate_file(self) -> Path:
        return self.folder / "certificate.pem"

    @property
    def _key_file(self) -> Path:
        return self.folder / "key.pem"

    def _make_configuration(self, *, factory: bool) -> SwitchConfig:
        switch = self.layout.rack.switches[self.name]
        plain = switch.tls is False
        operator = User(name=switch.user, password_file=self.password)
        certified = not (plain or factory)
        serial = (
            self._replaced_serial_file.read_text().strip() if self._replaced_serial_file.exists() else switch.serial
        )
        management = f"{switch.address}/{self.layout.management.prefixlen}"
        return SwitchConfig(
            address=switch.address,
            # A port that the rack does not use is still open on a real switch, unless it is the same one.
            api_port=switch.port if plain else PLAIN_API_PORT if switch.port != PLAIN_API_PORT else TLS_API_PORT,
            tls_port=TLS_API_PORT if plain else switch.port,
            www_port=80,
            www_ssl_port=switch.reader.port if switch.reader else 443,
            tls_cert=self._certificate_file if certified else None,
            tls_key=self._key_file if certified else None,
            state=self.folder / "state.json",
            log=self.log,
            control=self.control,
            bridge=FABRIC,
            management=FROM_THE_BOX if factory else management,
            follow=True,
            link=self.layout.switch_link(self.name),
            model=switch.hardware.board,
            **({"serial": serial} if serial else {}),
            users=(User(name="admin", password_file=self.sticker) if factory else operator,),
            boxed=factory,
            cables=tuple(self._list_cables()),
        )

    def _list_cables(self) -> list[EmulatedCable]:
        switch = self.layout.rack.switches[self.name]
        plugged = self.layout.cage_cables(switch)
        return [
            EmulatedCable(
                cage=cage,
                medium=switch.cages[cage].medium,
                tails=tuple(
                    CableTail(
                        lane=leg.lane,
                        lanes=len(leg.lanes),
                        gbps=leg.gbps,
                        node=port.node,
                        port=port.number,
                        taps=self.layout.taps(port),
                        state_file=VirtualNode(port.node, self.layout, self.paths).hardware,
                    )
                    for leg, port in legs
                ),
            )
            for cage, legs in plugged.items()
        ]
