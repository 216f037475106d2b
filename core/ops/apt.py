"""Install packages of a node: at versions that are named, never over a lock of others, never by removing any."""

from __future__ import annotations

import re

from pyinfra.api.command import StringCommand

from core.ops.shell import quote, sudo_script
from core.util import resources

LOCK_SECONDS = 120
"""Seconds to wait for a lock of another program. A lock is never removed."""

INTERRUPTED = (
    "{ ! [ -e /var/lib/dpkg/updates ] || ls /var/lib/dpkg/updates; } | grep -xE '[0-9]+' || [ $? -eq 1 ] || exit 9; "
    "grep -E '^Status: .* (half-installed|half-configured|unpacked|triggers-pending|triggers-awaited)$' "
    "/var/lib/dpkg/status || [ $? -eq 1 ] || exit 9"
)
"""For a probe: prints something if dpkg was interrupted, or left packages unfinished. What apt and `dpkg --audit`
look at, without starting them."""

WORD = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]*[a-z0-9+](:[a-z0-9]+)?)(=(?P<version>[0-9][A-Za-z0-9.+:~-]*)(?P<more>\*)?)?"
)
"""`name`, `name=version`, or `name=version*`. apt itself takes a word for an expression if it knows no such name."""

# Output goes to a file: without the operator's end of the connection apt would die at its next line.
_LOG = """\
log=$(mktemp /run/sparkrack-apt.XXXXXX)
trap 'rm -f "$log"' EXIT
logged() { "$@" </dev/null >"$log" 2>&1; }
fail() { tail -n 20 "$log" >&2; exit 1; }"""


def wait(seconds: int = LOCK_SECONDS) -> str:
    """Return shell text that waits until dpkg and apt are not locked, or stops and names the holder of the lock."""
    # needrestart is an apt hook of Ubuntu 24.04 that restarts services whose libraries changed, docker among them.
    return resources.shell_text("core.ops", "templates/apt-wait.sh", seconds=seconds)


def hold(*packages: str, seconds: int = LOCK_SECONDS) -> StringCommand:
    """The command that puts installed packages on hold. Raises ValueError for what is not a name of one."""
    for package in packages:
        if not WORD.fullmatch(package) or "=" in package:
            raise ValueError(f"no package: {package!r}")
    return sudo_script(f"{wait(seconds)}\napt-mark hold {quote(*packages)} > /dev/null")


def finish(seconds: int = LOCK_SECONDS) -> StringCommand:
    """The command that finishes what dpkg was interrupted in."""
    return sudo_script(f"{wait(seconds)}\n{_LOG}\nlogged dpkg --force-confold --configure -a || fail")


def install(*packages: str, downgrade: bool = False, held: bool = False, seconds: int = LOCK_SECONDS) -> StringCommand:
    """Return the command that installs packages; it may be killed at any time and repeated.

    A word is `name`, `name=version`, or `name=version*` for the newest that begins so: 580.159* is 580.159.03-1, not
    580.1590. The lists are updated only if they lack one of them. Edited configuration files are kept. `downgrade`: an
    older version may replace a newer one. `held`: packages on hold may change, and stay on hold. `seconds`: how long to
    wait for a lock. Raises ValueError for an invalid word.
    """
    return sudo_script(install_script(*packages, downgrade=downgrade, held=held, seconds=seconds))


def install_script(*packages: str, downgrade: bool, held: bool, seconds: int = LOCK_SECONDS) -> str:
    """The same as shell text for `set -eu`, to be run as root; it ends the shell where it fails."""
    words: list[str] = []
    for package in packages:
        match = WORD.fullmatch(package)
        if not match:
            raise ValueError(f"no package and version: {package!r}")
        name, version = match["name"], match["version"] or ""
        words += [name, version, "*" if not version else f"{version}[!0-9]*" if match["more"] else version]
    flags = [*(["--allow-downgrades"] if downgrade else []), *(["--allow-change-held-packages"] if held else [])]
    options = f"-o DPkg::Lock::Timeout={seconds} -o Dpkg::Options::=--force-confold"
    body = resources.shell_text(
        "core.ops", "templates/apt-install.sh", options=options, flags="".join(f"{flag} " for flag in flags)
    )
    return f"{wait(seconds)}\nset -- {quote(*words)}\n{_LOG}\n{body}"
