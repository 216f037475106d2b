"""Folders of the units and scripts of this role on a node."""

from __future__ import annotations

SCRIPTS = "/usr/local/lib/sparkrack"
UNITS = "/etc/systemd/system"
UNIT_FOLDERS = (UNITS, "/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/system")
"""Folders in which an administrator, or `systemctl set-property`, puts drop-ins that change a unit; a package's are in
/usr/lib.
"""
