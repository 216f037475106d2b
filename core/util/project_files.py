"""Where the files of the project are that no package holds: deploy.py, inventory.py, documents.

A clone has them at its root. A wheel has copies of them in core/project (pyproject.toml, force-include), so that an
installed command works from any folder.
"""

from __future__ import annotations

from pathlib import Path

PACKAGES = Path(__file__).parents[2]
"""The folder of the packages: the root of a clone, or site-packages."""

_INSTALLED = PACKAGES / "core/project"

PROJECT = _INSTALLED if _INSTALLED.is_dir() else PACKAGES
"""The folder of these files."""

DEPLOY = PROJECT / "deploy.py"
REMOVE = PROJECT / "remove.py"
INVENTORY = PROJECT / "inventory.py"
UNPROVEN = PROJECT / "docs/unproven.md"
WATCH_RUNBOOK = PROJECT / "docs/runbooks/watch.md"
