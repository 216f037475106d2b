"""The sshd and rsync that scripts/setup unpacks into .venv/openssh: started by root in mounts of its own.

sshd needs the user `sshd` and the folder /run/sshd, which its package makes when it is installed. Here a copy of
/etc/passwd and an empty /run are mounted for the server and its sessions alone.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks import BenchError

UNPACKED = Path(__file__).parent.parent / ".venv/openssh"
SSHD = UNPACKED / "usr/sbin/sshd"
RSYNC = UNPACKED / "usr/bin/rsync"
USER = "sshd:x:65533:65534:sshd:/run/sshd:/usr/sbin/nologin"
HELPERS = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
"""Programs that OpenSSH 9.8 and 10.0 have taken out of sshd. Releases without them refuse the words."""
MOUNTS = """set -e
sshd=$1 configuration=$2 user=$3
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
if ! grep -q '^sshd:' /etc/passwd; then
    { cat /etc/passwd; echo "$user"; } >/run/passwd
    mount --bind /run/passwd /etc/passwd
fi
exec "$sshd" -D -e -f "$configuration"
"""


def unpacked_environment() -> dict[str, str]:
    """The environment of a program that is unpacked: its libraries may be unpacked as well."""
    folders = [str(path) for top in ("lib", "usr/lib") for path in UNPACKED.glob(f"{top}/*-linux-gnu*")]
    return {**os.environ, **({"LD_LIBRARY_PATH": ":".join(folders)} if folders else {})}


def write_configuration(path: Path, lines: str) -> None:
    """Write the configuration of a server, with the places of the programs that this release starts."""
    folder = UNPACKED / "usr/lib/openssh"
    places = [f"{word} {folder / name}\n" for word, name in HELPERS.items() if (folder / name).exists()]
    path.write_text(lines + "".join(places), encoding="utf-8")


def start_sshd(configuration: Path, *before: str) -> subprocess.Popen[bytes]:
    """Start a server. `before`: words of a command that it is started by. Raises BenchError when it is not unpacked."""
    if not SSHD.exists():
        raise BenchError(f"{SSHD} is not there: `make setup FOR=tests` unpacks it")
    words = [*before, "unshare", "--mount", "sh", "-c", MOUNTS, "sh", str(SSHD), str(configuration), USER]
    return subprocess.Popen(words, env=unpacked_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
