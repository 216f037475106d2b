"""Where the files of the project are that no package holds: deploy.py, inventory.py, documents.

They stand beside the packages: in a clone at its root, in a wheel in the folder sparkrack_program (pyproject.toml).
"""

from __future__ import annotations

from pathlib import Path

PACKAGES = Path(__file__).parents[2]
"""The folder of the packages, and of these files."""

DEPLOY = PACKAGES / "deploy.py"
REMOVE = PACKAGES / "remove.py"
INVENTORY = PACKAGES / "inventory.py"
UNPROVEN = PACKAGES / "docs/unproven.md"
WATCH_RUNBOOK = PACKAGES / "docs/runbooks/watch.md"
