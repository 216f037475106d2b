"""Files that are wholly ours: told right from wrong by their hash, mode and owner, not carried to and fro. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SCRIPTS = "/usr/local/lib/sparkrack"
UNITS = "/etc/systemd/system"
UNIT_FOLDERS = (UNITS, "/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/system")
"""Where a person, or `systemctl set-property`, puts drop-ins that change a unit; a package's are in /usr/lib."""
MARKS = "/run/sparkrack"
"""Where it is noted that files of a unit were changed and systemd has not taken them up yet; a reboot does that too."""


@dataclass(frozen=True)
class Owned:
    """One file as it shall be, owned by root."""

    path: str
    content: bytes
    mode: str = "644"

    @property
    def shown(self) -> str:
        """What a node says of it when it is right."""
        return f"{self.mode} root:root {hashlib.sha256(self.content).hexdigest()}"


def notice(rack: str) -> str:
    """The first line of each file of ours."""
    return f"# Written by sparkrack for the rack {rack}; a change here is overwritten."


def question(paths: Iterable[str]) -> str:
    """Shell text that says of each file that is there its mode, owner, hash and path. A dangling link is no file."""
    return (
        f'set --; for f in {" ".join(paths)}; do [ ! -e "$f" ] || set -- "$@" "$f"; done; [ $# -gt 0 ] || exit 0; '
        # Two programs for all files: each one costs more than what it does.
        'm=$(stat -c "%a %U:%G" -- "$@") && s=$(sha256sum -- "$@") || exit 9; '
        'while read -r a <&3 && read -r h f <&4; do echo "$a $h $f"; done 3<<MODES 4<<SUMS\n$m\nMODES\n$s\nSUMS\n'
    )


def shown(answer: str) -> dict[str, str]:
    """What was said of each file, by its path. Raises ValueError when a line is anything else."""
    found = {}
    for line in answer.splitlines():
        words = line.split(" ", 3)
        if len(words) != 4 or len(words[2]) != 64 or not words[3].startswith("/"):
            raise ValueError(f"memory-files: cannot be told from {line[:80]!r}")
        found[words[3]] = " ".join(words[:3])
    return found


def stale(files: Iterable[Owned], said: Mapping[str, str]) -> list[Owned]:
    """Those that are not as they shall be."""
    return [file for file in files if said.get(file.path) != file.shown]


def in_words(files: Iterable[Owned], said: Mapping[str, str]) -> list[str]:
    """What is done about each of them."""
    return [f"{'write anew' if file.path in said else 'write'} {file.path}" for file in files]
