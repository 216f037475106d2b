"""A machine's apt in a folder, for the real apt-get."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path


class AptMachine:
    """A machine's apt in a folder: its own sources, lists and a repository on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "repository"
        for name in (
            "repository",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "state/lists/partial",
            "cache/archives/partial",
        ):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        self.configuration = folder / "apt.conf"
        self.configuration.write_text(
            f'Dir::State "{folder}/state";\nDir::State::Status "{folder}/status";\nDir::Cache "{folder}/cache";\n'
            f'Dir::Etc "{folder}/etc";\nAPT::Sandbox::User "root";\n'
        )

    def publish(self, origin: str) -> None:
        """Make the repository one of this origin."""
        packages = "Package: sample\nVersion: 1\nArchitecture: all\nFilename: ./sample.deb\nSize: 1\n"
        (self.repository / "Packages").write_text(packages)
        digest = hashlib.sha256(packages.encode()).hexdigest()
        (self.repository / "Release").write_text(
            f"Origin: {origin}\nLabel: {origin}\nSuite: stable\nDate: Sat, 01 Aug 2026 00:00:00 UTC\n"
            f"Architectures: amd64\nSHA256:\n {digest} {len(packages)} Packages\n"
        )

    def use(self, address: str) -> None:
        """Let apt read the index of an address."""
        (self.folder / "etc/sources.list").write_text(f"deb [trusted=yes] {address} ./\n")
        subprocess.run(
            ["apt-get", "-qq", "update"], check=True, env={**os.environ, "APT_CONFIG": str(self.configuration)}
        )
