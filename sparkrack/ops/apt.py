"""Install packages of a node: at versions that are named, never over a lock of others, never by removing any."""

from __future__ import annotations

import re

from pyinfra.api.command import StringCommand

from sparkrack.ops.shell import quote, root

LOCK_SECONDS = 120
"""How long a lock of another program is waited for. A lock is never taken away."""

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

# needrestart is an apt hook of Ubuntu 24.04 that restarts services whose libraries changed, docker among them.
_WAIT = """\
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C
set -f
holder() {
for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
inode=$(stat -c %i "$lock" 2>/dev/null) || continue
while read -r _ _ _ _ pid where _; do
case "$where" in *:"$inode") ;; *) continue;; esac
ls -l "/proc/$pid/fd" 2>/dev/null | grep -qF -- "-> $lock" || continue
printf '%s (pid %s)' "$(cat "/proc/$pid/comm" 2>/dev/null)" "$pid"
return 0
done < /proc/locks
done
return 1
}
waited=0
while who=$(holder); do
[ "$waited" -lt SECONDS ] || { echo "dpkg has been locked for SECONDS s by $who; nothing was changed" >&2; exit 1; }
sleep 1
waited=$((waited + 1))
done"""

# Everything is written to a file: with the operator's end gone, apt would else die in the middle of its next line.
_LOG = """\
log=$(mktemp /run/sparkrack-apt.XXXXXX)
trap 'rm -f "$log"' EXIT
logged() { "$@" </dev/null >"$log" 2>&1; }
told() { tail -n 20 "$log" >&2; exit 1; }"""

_INSTALL = """\
if [ -n "$(dpkg --audit)" ]; then logged dpkg --force-confold --configure -a || cat "$log"; fi
versions() { apt-cache madison -- "$1" 2>/dev/null | while IFS='| ' read -r _ version _; do echo "$version"; done; }
pick() { for version in $(versions "$1"); do case "$version" in $2|$3) echo "$version"; return;; esac; done; }
resolve() {
found= lacking=0
while [ $# -gt 0 ]; do
version=$(pick "$1" "$2" "$3")
if [ -z "$version" ]; then lacking=1; elif [ "$3" = "*" ]; then found="$found $1"; else found="$found $1=$version"; fi
shift 3
done
}
lacks() {
while [ $# -gt 0 ]; do
[ -n "$(pick "$1" "$2" "$3")" ] || {
there=$(echo $(versions "$1" | sort -u))
echo "$1${2:+ $2} is not in the configured repositories, which have ${there:-none}" >&2; }
shift 3
done
}
updated=0
update() { updated=1; logged apt-get OPTIONS -q update || told; }
install() { logged apt-get OPTIONS -q -y --no-install-recommends --no-remove FLAGS install -- $found; }
resolve "$@"
if [ "$lacking" = 1 ]; then update; resolve "$@"; fi
if [ "$lacking" = 1 ]; then lacks "$@"; grep -E '^[EW]:' "$log" >&2 || true; exit 1; fi
if ! install; then
if [ "$updated" = 1 ] || ! grep -q 'Failed to fetch' "$log"; then told; fi
update
resolve "$@"
[ "$lacking" = 0 ] || { lacks "$@"; exit 1; }
install || told
fi"""


def wait(seconds: int = LOCK_SECONDS) -> str:
    """Shell text that waits until nobody holds a lock of dpkg or apt, or stops and names who does."""
    return _WAIT.replace("SECONDS", str(seconds))


def hold(*packages: str, seconds: int = LOCK_SECONDS) -> StringCommand:
    """The command that puts installed packages on hold. Raises ValueError for what is no name of one."""
    for package in packages:
        if not WORD.fullmatch(package) or "=" in package:
            raise ValueError(f"no package: {package!r}")
    return root(f"{wait(seconds)}\napt-mark hold {quote(*packages)} > /dev/null")


def finish(seconds: int = LOCK_SECONDS) -> StringCommand:
    """The command that finishes what dpkg was interrupted in."""
    return root(f"{wait(seconds)}\n{_LOG}\nlogged dpkg --force-confold --configure -a || told")


def install(*packages: str, downgrade: bool = False, held: bool = False, seconds: int = LOCK_SECONDS) -> StringCommand:
    """The command that installs packages, which may be killed at any time and repeated.

    A word is `name`, `name=version`, or `name=version*` for the newest that begins so: 580.159* is 580.159.03-1, not
    580.1590. The lists are brought up to date only if they lack one of them. Configuration files of a person are kept.
    `downgrade`: an older version may replace a newer one. `held`: packages on hold may change, and stay on hold.
    `seconds`: how long a lock is waited for. Raises ValueError for what is no such word.
    """
    return root(install_script(*packages, downgrade=downgrade, held=held, seconds=seconds))


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
    body = _INSTALL.replace("OPTIONS", options).replace("FLAGS ", "".join(f"{flag} " for flag in flags))
    return f"{wait(seconds)}\nset -- {quote(*words)}\n{_LOG}\n{body}"
