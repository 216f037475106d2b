"""An owner of a switch with an old release: package files in a folder, and `sparkrack upgrade switch`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from lab.routeros_emulator.software import package
from sparkrack.cli.main import sparkrack
from tests.emulator.bootstrap_runs import HERE, Workdir
from tests.emulator.fork_server import ForkedProgram
from tests.emulator.raw_client import RawClient, attributes

TARGET = "7.24.6"
SIZE = 150_000
"""Bytes of a package: several answers of /file/read."""


class PackageOwner:
    """A desk whose switch is to be upgraded. `state`: where backups are kept."""

    def __init__(self, workdir: Workdir) -> None:
        self.workdir = workdir
        self.emulator = workdir.emulator
        self.folder = workdir.folder / "packages"
        self.state = workdir.folder / "state"
        self.folder.mkdir()
        for name in ("routeros", "switch-marvell"):
            self.put(name)

    def put(self, name: str, version: str = TARGET, architecture: str = "arm64", size: int = SIZE) -> Path:
        """Put a package into the folder."""
        path = self.folder / f"{name}-{version}-{architecture}.npk"
        path.write_bytes(package(name, version, size))
        return path

    def words(self, *more: str) -> list[str]:
        given = ["--rack", str(self.workdir.rack), "--address", HERE, "--api-port", str(self.emulator.plain_port)]
        given += ["--packages", str(self.folder), "--password-file", str(self.workdir.sticker), "--timeout", "30"]
        return ["upgrade", "switch", *given, *more]

    def run(self, *more: str) -> tuple[int, str]:
        """Run it in this process: exit code, and all output."""
        ended = CliRunner().invoke(sparkrack, self.words(*more), env={"XDG_STATE_HOME": str(self.state)})
        assert ended.exception is None or isinstance(ended.exception, SystemExit), repr(ended.exception)
        self.workdir.keeps_quiet(ended.output)
        return ended.exit_code, ended.output

    def start(self) -> ForkedProgram:
        """Start it in a separate process."""
        environment = os.environ | {"XDG_STATE_HOME": str(self.state)}
        return ForkedProgram("sparkrack", self.words("-y"), env=environment)

    def kill_at(self, command: str, count: int = 1) -> str:
        """Run until the switch has got a command for the `count`th time, then kill it; what it had printed."""
        process = self.start()
        self.workdir.until(lambda: self.commands().count(command) >= count, process)
        process.kill()
        return process.communicate()[0]

    def commands(self) -> list[str]:
        """Every command that the switch has answered so far."""
        return [line["command"] for line in self.workdir.log() if line.get("command")]

    def writes(self) -> list[str]:
        """The commands that were meant to change it."""
        return self.workdir.writes()

    def admin(self) -> RawClient:
        """A session of the factory's user, also while the switch restarts."""
        end = time.monotonic() + 60
        while True:
            try:
                client = RawClient(self.emulator.plain_port)
                client.login("admin", self.workdir.sticker.read_text().strip())
            except (OSError, EOFError):
                assert time.monotonic() < end
                time.sleep(0.1)
            else:
                return client

    def rows(self, path: str) -> list[dict[str, str]]:
        """The rows of a menu, as the switch prints them; asked again when its restart ends the session."""
        end = time.monotonic() + 60
        while True:
            client = self.admin()
            try:
                return [attributes(row) for row in client.ask(f"{path}/print") if row[0] == "!re"]
            except (OSError, EOFError):
                assert time.monotonic() < end
            finally:
                client.close()

    def software(self) -> dict[str, Any]:
        """Release, firmware and files of the switch."""
        (board,) = self.rows("/system/routerboard")
        (resource,) = self.rows("/system/resource")
        return {
            "version": resource["version"].split()[0],
            "packages": {row["name"]: row["version"] for row in self.rows("/system/package")},
            "firmware": (board["current-firmware"], board["upgrade-firmware"]),
            "files": [row["name"] for row in self.rows("/file")],
        }

    def is_upgraded(self, version: str = TARGET) -> None:
        """It runs the target with its firmware, and nothing of the upgrade is left on it."""
        packages = {"routeros": version, "switch-marvell": version}
        assert self.software() == {
            "version": version,
            "packages": packages,
            "firmware": (version, version),
            "files": [],
        }

    def backups(self) -> list[Path]:
        return sorted((self.state / "sparkrack" / "spark8" / "crs812" / "upgrades").iterdir())


MakePackageOwner = Callable[..., PackageOwner]
