"""The lines of drop-in files that set something, for a probe; sparkrack.fleet.dropins says whose wins."""

from __future__ import annotations

from sparkrack.ops.shell import quote

SYSCTL = tuple(f"{folder}/sysctl.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
"""Where systemd looks for kernel settings."""
MANAGER = tuple(f"{folder}/systemd/system.conf.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
"""Where it looks for its own."""


def settings(folders: tuple[str, ...], pattern: str) -> str:
    """Shell text that prints `path:line` for each line that matches an extended regular expression.

    Of files that have the same name only the one in the first folder is looked at. Ends with exit 9 when one of the
    others cannot be read.
    """
    return (
        f'seen=/; set --; for f in {" ".join(folders)}; do for c in "$f"/*.conf; do [ -e "$c" ] || continue; '
        'n=${c##*/}; case "$seen" in *"/$n/"*) continue;; esac; seen="$seen$n/"; set -- "$@" "$c"; done; done; '
        f'[ $# -eq 0 ] || grep -HE {quote(pattern)} "$@" || [ $? -eq 1 ] || exit 9'
    )
