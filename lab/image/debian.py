"""Programs of Debian that run on this machine for the lab: unpacked into the cache, not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lab.errors import LabError
from lab.image.mirror import mirror

SUITE = "bookworm"
"""The release they are taken from, whatever this machine runs: nodes then behave alike everywhere."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpack(packages: Mapping[str, Path]) -> None:
    """Download packages, without what they need, and unpack each into its folder. Raises LabError with what failed."""
    folders = set(packages.values())
    for folder in folders:
        folder.mkdir(parents=True)
    work = min(folders) / "apt"
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True)
    sources = work / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    status = work / "status"
    status.touch()
    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::State::Status": status,
        "Dir::Cache": work,
        "Dir::Cache::Archives": work / "archives",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    run([*apt, "update"], "package lists")
    run([*apt, "download", *packages], f"downloading {', '.join(packages)}", cwd=work)
    for name, folder in packages.items():
        package = next(work.glob(f"{name}_*.deb"))
        run(["dpkg-deb", "--extract", str(package), str(folder)], f"unpacking {name}")
    shutil.rmtree(work)


def run(command: list[str], what: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run a step of the build. Raises LabError with the last lines of what it said."""
    settled = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(environment or {})}
    try:
        done = subprocess.run(command, cwd=cwd, env=settled, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise LabError(f"{what}: {error.filename} is not installed; run `make setup`") from None
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise LabError(f"{what} failed (exit {done.returncode}):\n{tail}")
