"""Source of Debian packages: the machine's own apt configuration, or `SPARKRACK_DEBIAN_MIRROR`."""

from __future__ import annotations

import os
import subprocess

from lab.errors import LabError


def mirror() -> str:
    """The address of a Debian mirror. Raises LabError where the machine has none (Ubuntu) and none was named."""
    named = os.environ.get("SPARKRACK_DEBIAN_MIRROR")
    if named:
        return named
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)"], capture_output=True, text=True
    )
    for line in done.stdout.splitlines():
        origin, _, rest = line.partition(" ")
        label, _, address = rest.partition(" ")
        if (origin, label) == ("Debian", "Debian"):
            return address
    raise LabError(
        "no Debian mirror in this machine's apt configuration (after `apt-get update`); "
        "set SPARKRACK_DEBIAN_MIRROR=<address of a Debian mirror>"
    )
