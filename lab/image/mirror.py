"""Source of Debian packages: `SPARKRACK_DEBIAN_MIRROR`, or the machine's own apt configuration."""

from __future__ import annotations

import os
import re
import subprocess

from lab.errors import LabError

VARIABLE = "SPARKRACK_DEBIAN_MIRROR"


def debian_mirror() -> str:
    """The address of a Debian mirror, without a slash at its end.

    Raises LabError where the variable is set to something else than an address, and where neither it nor this machine's
    apt names a mirror (Ubuntu).
    """
    if named := os.environ.get(VARIABLE):
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://\S+", named):
            raise LabError(
                f"{VARIABLE}={named!r} is not the address of a Debian mirror; write one like http://HOST/debian"
            )
        return named.rstrip("/")
    if found := _of_apt():
        return found
    raise LabError(
        f"this machine's apt names no Debian mirror, as on Ubuntu; set {VARIABLE}=http://HOST/debian to a mirror near "
        "you (https://www.debian.org/mirror/list)"
    )


def _of_apt() -> str:
    """The mirror of Debian in this machine's apt configuration; empty where there is none, or no apt."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN)\t$(LABEL)\t$(REPO_URI)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    for line in done.stdout.splitlines():
        origin, label, address = line.split("\t")
        if (origin, label) == ("Debian", "Debian"):
            return _with_three_slashes(address.rstrip("/"))
    return ""


def _with_three_slashes(address: str) -> str:
    """The address of a file as mmdebstrap takes it: apt prints `file:///x` and `mirror+file:///x` with one slash."""
    return re.sub(r"^([a-z][a-z0-9+.-]*):/(?!/)", r"\1:///", address)
