"""Parameters of the kernel's command line: fragments of GRUB, and what the next boot will have of them. Pure.

GRUB reads the files of its folder in the order of their names, so that a fragment of ours comes after those of
packages. Of a parameter that stands twice on the command line the kernel takes the last one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from core.model import Rack
from core.util.managed_file import ManagedFile, header, validate_shell

FOLDER = "/etc/default/grub.d"
CONFIG = "/boot/grub/grub.cfg"
Live = Mapping[tuple[str, str], str]
_MISSING = {
    "yes": "",
    "no": f"this node has no GRUB (update-grub and {CONFIG})",
    "systemd-boot": "systemd-boot starts this node, and not GRUB",
}


class Grub(NamedTuple):
    """GRUB on a node. `missing`: why it gives the kernel nothing; empty where it starts the kernel. `unfinished`: the
    last update-grub failed or was killed. `older`: its configuration is older than this boot.
    """

    missing: str
    unfinished: bool
    older: bool


def fragment(rack: Rack, path: str, parameter: str) -> ManagedFile:
    """Return the fragment that adds one parameter. Entries for recovery do not get it."""
    line = f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {parameter}"'
    return ManagedFile(path, f"{header(rack.rack)}\n{line}\n".encode(), validate=validate_shell())


def update(path: str, name: str, value: str) -> str:
    """Return shell text for `set -eu` that has GRUB read its fragments, and fails unless the next boot has a value.

    `path`: our fragment; files of the folder that are read after it and set command lines are named.
    """
    wrong = shlex.quote(f"{CONFIG} does not give the kernel {name}={value}: a file of {FOLDER} that is read later wins")
    fail = f"{{ {_later_files_test(path)}; echo {wrong}${{later:+:$later}} >&2; exit 1; }}"
    return (
        f"{run_update()}; {_kernel_line_command()} | tr -s ' \\t' '\\n' | "
        f"grep -E {_parameter_pattern(name)} | tail -n 1 | grep -qxF {shlex.quote(f'{name}={value}')} || {fail}"
    )


def _later_files_test(path: str) -> str:
    return (
        f"ours= later=; for f in {FOLDER}/*.cfg; do "
        f'case "$f" in {path}) ours=1 ;; {FOLDER}/zz-sparkrack-*) ;; '
        '*) if [ -n "$ours" ] && grep -qs GRUB_CMDLINE_LINUX "$f"; then later="$later $f"; fi ;; esac; done'
    )


def remove(path: str) -> str:
    """Return shell text for `set -eu` that removes a fragment. It is emptied first and removed last: while it is there,
    the next run knows that GRUB may not have read the removal."""
    return f": > {path}; {run_update()}; rm -f {path}"


def run_update() -> str:
    """Return shell text that has GRUB read its fragments; what it prints is shown when it fails."""
    return 'said=$(update-grub 2>&1) || { printf "%s\\n" "$said" >&2; exit 1; }'


def _kernel_line_command() -> str:
    return f"grep -m 1 -E '^[[:space:]]*linux[[:space:]]' {CONFIG}"


def _parameter_pattern(name: str) -> str:
    return shlex.quote(f"^{re.escape(name)}=")


def kernel_option(live: Live, name: str) -> str:
    """Return y, m, or absent, of an option of the running kernel. Raises ValueError when it is unknown."""
    return answer(live, "config", name, "y|m|absent", "neither /boot/config-* nor /proc/config.gz can be read")


def grub(live: Live) -> Grub:
    """Return the state of GRUB. Raises ValueError when it is unknown."""
    return Grub(
        missing=_MISSING[answer(live, "grub", "program", "|".join(_MISSING))],
        unfinished=answer(live, "grub", "unfinished", "yes|no") == "yes",
        older=answer(live, "grub", "older", "yes|no") == "yes",
    )


def passed_over(parameter: str) -> str:
    """Return what is wrong when a boot lacks a parameter that GRUB had before it began."""
    return (
        f"this boot began after {CONFIG} had {parameter}, and its kernel does not have it: another entry of GRUB's "
        "menu, or another boot loader, started it"
    )


def answer(live: Live, subject: str, name: str, pattern: str, why: str = "") -> str:
    """Return one line of the kernel's state. Raises ValueError, with a reason, for a value of another form."""
    value = live.get((subject, name), "no answer")
    if not re.fullmatch(pattern, value):
        more = f" ({why})" if why else ""
        raise ValueError(f"blackbox kernel: {subject} {name}: unexpected probe output {value[:80]!r}{more}")
    return value
