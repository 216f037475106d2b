"""An operator with a rack file and a key."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from tests.unit.model.racks import SWITCH, changed


class Seeding:
    """A rack whose operator has a key."""

    def __init__(self, folder: Path, passphrase: str = "") -> None:
        self.folder, self.out, self.key = folder, folder / "seeds", folder / "key"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "ana@desk", "-f", str(self.key)]
        subprocess.run(words, check=True)
        self.rack = folder / "rack.yaml"
        self.rack.write_text(changed(SWITCH, ("~/.ssh/id_ed25519", str(self.key))))

    @property
    def public(self) -> str:
        return " ".join(Path(f"{self.key}.pub").read_text().split()[:2])

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["seed", "--rack", str(self.rack), "--out", str(self.out), *words])


@pytest.fixture
def seeding(tmp_path: Path) -> Seeding:
    return Seeding(tmp_path)
