"""Prometheus, Alertmanager and their tools, unpacked by `scripts/setup tests`, and racks that declare `watch`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from core.model import Rack
from core.model.secrets import SecretRef
from core.util.managed_file import ManagedFile
from roles.watch import desired, notifications, rules, scrape
from tests.unit.model.racks import SWITCH, changed, loaded

AMTOOL = """#!/bin/sh
echo "$@" >> "$NODES/silenced"
echo id-of-a-silence
"""
"""A stand-in for amtool where nodes are folders below $NODES: it notes its arguments in the file `silenced`."""
UNPACKED = Path(__file__).parents[3] / ".venv/prometheus"
PROGRAMS = UNPACKED / "usr/bin"
HOOK, HEARTBEAT = SecretRef(env="WATCH_WEBHOOK"), SecretRef(env="WATCH_HEARTBEAT")


def rack(section: str = "{}", *edits: tuple[str, str]) -> Rack:
    """Two nodes behind a switch, the first of which has a cap on its clock."""
    declared = ("rack: two", f"rack: two\nblackbox: {{clock_cap: {{asus: 2200}}}}\nwatch: {section}")
    return loaded(changed(SWITCH, declared, *edits))


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of the tools."""
    program, *arguments = words
    return subprocess.run([PROGRAMS / program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def silenced(folder: Path) -> list[str]:
    """What the stand-in for amtool was asked: `add`, the work and the matchers of a silence, or `expire`."""
    file, found = folder / "silenced", []
    for line in file.read_text().splitlines() if file.exists() else ():
        asked = line.partition(" silence ")[2]
        if not asked.startswith("add "):
            found.append(asked)
            continue
        made = re.fullmatch(
            r"add --author=sparkrack --comment=\d{8}T\d{6}-[0-9a-f]{8} (.+) --duration=(\d+)s (.+)", asked
        )
        assert made, asked
        found.append(f"{made[1]}: {made[3]}")
    return found


def written(folder: Path, found: Rack, values: Mapping[SecretRef, str] | None = None) -> Path:
    """Write the files of the server into a folder, which takes the place of /etc/prometheus in them."""
    files = [
        rules.rule_file(found),
        scrape.prometheus_file(found),
        ManagedFile(desired.NOTIFICATIONS, notifications.alertmanager_text(found, values or {})),
    ]
    for file in files:
        text = file.content.decode().replace("/etc/prometheus/", f"{folder}/")
        (folder / Path(file.path).name).write_text(text)
    return folder
