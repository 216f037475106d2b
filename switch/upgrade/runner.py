"""The upgrade of a switch, step by step. Each step reads the switch first, so a killed run is simply run again."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import SecretStr

from core.model import Switch
from core.routeros.api import ANSWER_SECONDS, ApiSession
from core.routeros.errors import (
    CertificateError,
    CheckError,
    LoginError,
    SentenceError,
    SessionError,
    StoppedError,
    SwitchError,
)
from core.routeros.menus import ROUTERBOARD
from core.routeros.session import SessionConnection
from core.util import regular_file
from switch import backup
from switch.bootstrap.first_contact import FirstContact
from switch.bootstrap.menus import FACTORY_USER
from switch.bootstrap.passwords import FactoryPassword, Password
from switch.upgrade.differences import differences, export_diff
from switch.upgrade.package_server import PackageServer
from switch.upgrade.packages import PackageFile, PackageFolder
from switch.upgrade.plan import UpgradePlan, plan_upgrade
from switch.upgrade.switch_state import SwitchUnit, read_unit

FETCH_SECONDS = 900.0
"""Seconds for the download of one package."""
# claim: switch.upgrade.firmware-log
FIRMWARE_SECONDS = 60.0
"""Seconds to wait for the line of the log that says that the firmware is written; it takes a few (reported)."""
GOING_DOWN_SECONDS = 90.0
"""Seconds within which a switch that has received the command to restart is down."""
POLL_SECONDS = 0.5
SHOW_SECONDS = 10.0
CONNECT_SECONDS = 5.0

COMPARED = "compared.txt"
"""File in a backup of an upgrade: the result of the comparison with the switch afterwards."""
# claim: switch.upgrade.restart
REBOOT, APPLY_CHANGES = "/system/reboot", "/system/package/apply-changes"
_Answer = TypeVar("_Answer")
_WRITTEN = "irmware upgraded successfully"


@dataclass(frozen=True)
class SwitchLogin:
    """A login that works. `tls`: fingerprint of the certificate; None: the plain API."""

    host: str
    port: int
    tls: str | None
    user: str
    password: SecretStr

    @property
    def factory(self) -> bool:
        """Whether it is the factory's user: the switch was not bootstrapped yet."""
        return self.user == FACTORY_USER

    def open(self, *, timeout: float = ANSWER_SECONDS, connect: float | None = None) -> ApiSession:
        """Log in. Raises SwitchError."""
        return ApiSession(
            self.host,
            self.port,
            tls=self.tls,
            user=self.user,
            password=self.password,
            timeout=timeout,
            connect=connect,
        )


def unfinished(place: Path) -> bool:
    """Return whether the newest upgrade that this machine began was not finished. `place`: folder of the backups."""
    names = backup.names(place)
    return bool(names) and not (place / names[-1] / COMPARED).exists()


def once_answered(act: Callable[[], _Answer], timeout: float) -> _Answer:
    """Return what `act` does with a switch that may be restarting: repeated for `timeout` seconds while it does not
    answer. Raises the exceptions of `act`."""
    end = time.monotonic() + timeout
    while True:
        try:
            return act()
        except (LoginError, CertificateError, SentenceError):
            raise
        except SwitchError:
            if time.monotonic() >= end:
                raise
        time.sleep(POLL_SECONDS)


def find_login(switch: Switch, address: str, api_port: int, sticker: FactoryPassword, *, replace: bool) -> SwitchLogin:
    """Return the best login there is, as for a first contact: ours over the pinned certificate, else the factory's.
    `sticker`: the factory's password. Raises RefusedError, SwitchError or SecretError.
    """
    own = Password(switch.password)
    found = FirstContact(switch, address, api_port, replace, own, sticker).find()
    found.line.close()
    pin = switch.tls.sha256 if switch.tls and found.secure else None
    password = sticker.accepted if found.user == FACTORY_USER else own.get()
    return SwitchLogin(found.host, switch.port if found.secure else api_port, pin, found.user, password)


@dataclass
class SwitchUpgrade:
    """One upgrade. `place`: folder of the backups of upgrades. `say` reports progress. `listen`: TCP port for the
    switch's downloads, 0 for any. `timeout`: seconds for the switch to come back. `stopped` returns why nothing more
    may be sent.
    """

    switch: Switch
    folder: PackageFolder
    login: SwitchLogin
    place: Path
    say: Callable[[str], None]
    listen: int = 0
    timeout: float = 600.0
    stopped: Callable[[], str] = lambda: ""
    _line: SessionConnection = field(init=False)

    def __post_init__(self) -> None:
        self._line = self._open_connection()

    def plan(self) -> UpgradePlan:
        """Read the switch and return the steps. Raises RefusedError, SwitchError or UnreadableError."""
        self._line.connect()
        return plan_upgrade(self.switch, self.folder, self._read_unit())

    @property
    def lost(self) -> bool:
        """Whether the session with the switch is lost."""
        return self._line.lost

    def close(self) -> None:
        """End the session. Never raises."""
        self._line.close()

    def run(self, plan: UpgradePlan) -> bool:
        """Carry out the steps; True when the configuration is as before. Raises CheckError, SwitchError,
        UnreadableError or SecretError at the step that failed.
        """
        if plan.installs or (plan.firmware and self._open_backup(plan.unit.serial) is None):
            self._keep_backup()
        if plan.installs:
            self._install_packages(plan)
        unit = self._read_same_unit(plan.unit)
        if unit.firmware[0] != unit.firmware[1]:
            self._upgrade_firmware(unit)
        return self._compare_configuration(plan)

    def compare(self, plan: UpgradePlan) -> bool | None:
        """Compare the configuration with the backup of an upgrade that was interrupted before it could; None when there
        is not such a backup."""
        kept = self._open_backup(plan.unit.serial)
        return None if kept is None else self._is_unchanged(kept)

    def _open_connection(self, *, timeout: float = ANSWER_SECONDS, connect: float | None = None) -> SessionConnection:
        line = SessionConnection(partial(self.login.open, timeout=timeout, connect=connect), self.say)
        line.stopped = lambda: self.stopped()
        return line

    def _read_unit(self) -> SwitchUnit:
        return read_unit(lambda sentence: self._line.talk(*sentence))

    def _read_same_unit(self, before: SwitchUnit) -> SwitchUnit:
        """Read the unit again, which must be the same one. Raises CheckError."""
        unit = self._read_unit()
        for what, was, now in (("serial number", before.serial, unit.serial), ("identity", before.name, unit.name)):
            if was != now:
                raise CheckError(f"its {what} was {was or '(none)'} and is {now or '(none)'}: another switch answers")
        return unit

    def _keep_backup(self) -> None:
        name = f"sparkrack-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
        keeper = backup.Keeper(self.place, self.switch.backups, lambda: self.login.password)
        self.say(f"backup kept in {keeper.keep(self._line, name)}")

    def _open_backup(self, serial: str) -> Path | None:
        """The newest backup of this unit, if nothing was compared with it yet."""
        for name in reversed(backup.names(self.place)):
            rows = backup.load(self.place / name / "rows.json").tables.get(ROUTERBOARD.path) or ({},)
            if rows[0].get("serial-number", "") == serial:
                return None if (self.place / name / COMPARED).exists() else self.place / name
        return None

    def _install_packages(self, plan: UpgradePlan) -> None:
        self._upload_packages(plan)
        self._restart_switch(REBOOT)
        unit = self._read_same_unit(plan.unit)
        # MikroTik's manual installs uploaded packages by a restart; some reports of 7.18 and later by this command.
        if _lacking_packages(unit, plan) and any(package.file in unit.files for package in plan.installs):
            self.say("the restart did not install the packages, which are still there; asking RouterOS to install them")
            with suppress(SentenceError):
                self._restart_switch(APPLY_CHANGES)
                unit = self._read_same_unit(plan.unit)
        if lacking := _lacking_packages(unit, plan):
            raise CheckError(
                f"the switch restarted and runs RouterOS {unit.version}; it did not install {', '.join(lacking)}"
                f"{self._newest_lines('install', 'upgrade', 'package')}"
            )
        self.say(f"runs RouterOS {unit.version}")

    def _upload_packages(self, plan: UpgradePlan) -> None:
        missing = [package for package in plan.installs if not self._has_file(package)]
        if not missing:
            return
        files = {package.file: package.path for package in missing}
        with PackageServer(files, (self.login.host, self.login.port), self.listen) as server:
            for package in missing:
                self._fetch_package(server, package)

    def _fetch_package(self, server: PackageServer, package: PackageFile) -> None:
        self.say(f"the switch downloads {package.file} ({package.size / 1024**2:.1f} MiB) from {server.place}")
        line = self._open_connection(timeout=FETCH_SECONDS)
        line.connect()
        try:
            # claim: switch.upgrade.fetch
            line.talk("/tool/fetch", f"=url={server.url(package.file)}", f"=dst-path={package.file}", "=output=file")
        except SentenceError as fault:
            raise CheckError(
                f"the switch could not download {package.file} from {server.place} ({fault}): let it reach that port "
                "of this machine (--listen PORT chooses it), or copy the packages to it (WinBox, SFTP) and run again"
            ) from None
        finally:
            line.close()
        if not self._has_file(package):
            raise CheckError(f"{package.file} did not arrive whole on the switch; run again")

    def _has_file(self, package: PackageFile) -> bool:
        """Return whether the switch has the file with the same contents; where it does not let them be read, with the
        same size."""
        rows = self._line.talk("/file/print", "=.proplist=name,size", f"?name={package.file}")
        size = rows[0].get("size", "") if rows else ""
        if not rows or (size.isdecimal() and int(size) != package.size):
            return False
        try:
            digest = hashlib.sha256(backup.fetch(self._line, package.file)).hexdigest()
        except SentenceError as fault:
            self.say(f"{package.file}: the switch does not let its contents be read ({fault}); its size is right")
            return size.isdecimal()
        except CheckError:
            return False
        if digest == package.sha256:
            self.say(f"{package.file} is on the switch, sha256 {digest}")
        return digest == package.sha256

    def _upgrade_firmware(self, unit: SwitchUnit) -> None:
        current, offered = unit.firmware
        before = self._written_log_ids()
        self._line.talk("/system/routerboard/upgrade")
        self.say(f"firmware {current} -> {offered}")
        end = time.monotonic() + FIRMWARE_SECONDS
        while not self._written_log_ids() - before:
            if time.monotonic() > end:
                self.say(f"the log has no line that the firmware is written after {FIRMWARE_SECONDS:.0f} s; going on")
                break
            time.sleep(POLL_SECONDS)
        self._restart_switch(REBOOT)
        current, offered = self._read_same_unit(unit).firmware
        if current != offered:
            raise CheckError(
                f"the switch restarted with firmware {current}, and {offered} is there for it"
                f"{self._newest_lines('irmware')}"
            )
        self.say(f"runs firmware {current}")

    def _written_log_ids(self) -> set[str]:
        return {row.get(".id", "") for row in self._line.talk("/log/print") if _WRITTEN in row.get("message", "")}

    def _newest_lines(self, *words: str) -> str:
        """The newest lines of the log that have one of `words`, for the end of a message."""
        try:
            rows = self._line.talk("/log/print")
        except SwitchError as fault:
            return f"; its log could not be read ({fault})"
        lines = [row.get("message", "") for row in rows if any(word in row.get("message", "") for word in words)]
        return f"; its log: {'; '.join(lines[-3:])}" if lines else "; see /log/print on it"

    def _restart_switch(self, command: str) -> None:
        """Restart the switch and wait until it is back, in a new session. Raises CheckError or SwitchError."""
        uptime, begin = self._read_unit().uptime, time.monotonic()
        self.say("restarts")
        # The answer may be lost with the connection.
        with suppress(SessionError):
            self._line.talk(command)
        self._line.close()
        down, shown = False, begin
        while True:
            if why := self.stopped():
                raise StoppedError(f"{why}; nothing more is sent")
            self._line = self._open_connection(connect=CONNECT_SECONDS)
            passed = time.monotonic() - begin
            try:
                self._line.connect()
                # Uptime is in whole seconds.
                if down or self._read_unit().uptime + 1.5 < uptime + passed:
                    break
            except (LoginError, CertificateError, StoppedError):
                raise
            except SwitchError:
                down = True
            self._line.close()
            if not down and passed > GOING_DOWN_SECONDS:
                raise CheckError(f"the switch did not restart within {GOING_DOWN_SECONDS:.0f} s; run again")
            if passed > self.timeout:
                raise CheckError(
                    f"the switch does not answer {self.timeout:.0f} s after its restart; look at its console, and run "
                    "again when it is back"
                )
            if time.monotonic() - shown > SHOW_SECONDS:
                shown = time.monotonic()
                self.say(f"waiting for the switch, {passed:.0f} s")
            time.sleep(POLL_SECONDS)
        self.say(f"is back after {time.monotonic() - begin:.0f} s")

    def _compare_configuration(self, plan: UpgradePlan) -> bool:
        unit = self._read_same_unit(plan.unit)
        if lacking := _lacking_packages(unit, plan):
            raise CheckError(f"the switch does not have {', '.join(lacking)} of RouterOS {plan.version}; run again")
        kept = self._open_backup(unit.serial)
        if kept is None:
            raise CheckError(f"{self.place} has no backup from before the upgrade any more; nothing was compared")
        return self._is_unchanged(kept)

    def _is_unchanged(self, kept: Path) -> bool:
        found = differences(backup.load(kept / "rows.json"), backup.reading(self._line))
        for line in found.added:
            self.say(f"new in this release: {line}")
        for line in found.changed:
            self.say(f"not as before the upgrade: {line}")
        export = backup.fetch_export(self._line, kept.name)
        try:
            if lines := export_diff(regular_file.read_bytes(kept / "export.rsc"), export):
                _write_file(kept / "export.diff", "\n".join(lines) + "\n")
                self.say(f"the text export reads otherwise than before, see {kept / 'export.diff'}")
            _write_file(kept / COMPARED, "".join(f"{line}\n" for line in found.changed))
        except OSError as fault:
            raise CheckError(f"{kept}: the text exports could not be compared: {fault.strerror}") from None
        if not found.changed:
            self.say("the configuration is as before the upgrade")
        return not found.changed


def _lacking_packages(unit: SwitchUnit, plan: UpgradePlan) -> list[str]:
    return [package.name for package in plan.installs if unit.packages.get(package.name) != package.version]


def _write_file(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
