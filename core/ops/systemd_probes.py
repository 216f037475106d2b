"""Probe commands for unit files and drop-ins. They read files: `systemctl` would answer from what it has loaded."""

from __future__ import annotations

from collections.abc import Iterable

from core.ops.shell import quote

SYSCTL = tuple(f"{folder}/sysctl.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
"""Folders where systemd reads kernel settings."""
MANAGER = tuple(f"{folder}/systemd/system.conf.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
"""Folders where systemd reads its own settings."""


def dropin_settings(folders: tuple[str, ...], pattern: str) -> str:
    """Shell text that prints `path:line` for each line that matches an extended regular expression.

    Of files that have the same name only the one in the first folder is read. Ends with exit 9 when one of the
    others cannot be read.
    """
    return (
        f'seen=/; set --; for f in {" ".join(folders)}; do for c in "$f"/*.conf; do [ -e "$c" ] || continue; '
        'n=${c##*/}; case "$seen" in *"/$n/"*) continue;; esac; seen="$seen$n/"; set -- "$@" "$c"; done; done; '
        f'[ $# -eq 0 ] || grep -HE {quote(pattern)} "$@" || [ $? -eq 1 ] || exit 9'
    )


FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
"""Folders where systemd reads unit files, first match first."""


def list_unit_files(names: Iterable[str], folders: Iterable[str] = FOLDERS) -> str:
    """Shell text that prints `path target` for each unit file of these names (patterns); no target for a plain file."""
    named = " -o ".join(f"-name {quote(name)}" for name in names)
    return (
        f'set --; for f in {" ".join(folders)}; do [ ! -d "$f" ] || set -- "$@" "$f"; done; '
        rf"""[ $# -eq 0 ] || find "$@" -maxdepth 1 \( {named} \) -printf '%p %l\n'"""
    )
