"""Unit files of a node, for a probe: looked at, not asked for. `systemctl` would cost more than the rest."""

from __future__ import annotations

from collections.abc import Iterable

from sparkrack.ops.shell import quote

FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
"""Where systemd looks for them, the first one wins."""


def listed(names: Iterable[str], folders: Iterable[str] = FOLDERS) -> str:
    """Shell text that prints `path target` for each unit file of these names (patterns); no target for a plain file."""
    named = " -o ".join(f"-name {quote(name)}" for name in names)
    return (
        f'set --; for f in {" ".join(folders)}; do [ ! -d "$f" ] || set -- "$@" "$f"; done; '
        rf"""[ $# -eq 0 ] || find "$@" -maxdepth 1 \( {named} \) -printf '%p %l\n'"""
    )


def sound(name: str) -> str:
    """Shell text for the check of `files.put`: systemd takes the new file for a unit of this name without complaint.

    systemd knows a unit by its file's name, which the new file does not have yet.
    """
    return (
        f'as=$(mktemp -d)/{name}; cp "$new" "$as"; '
        'systemd-analyze verify --man=no --recursive-errors=no "$as" || { rm -r "${as%/*}"; exit 1; }; '
        'rm -r "${as%/*}"'
    )
