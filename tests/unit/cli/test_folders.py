"""A rack in a folder whose name would be read as more than a name in OpenSSH's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.runs import command, guarded
from tests.unit.model.racks import SWITCH, changed

FOLDERS = {
    "quote": '100% rack "q',
    "line break": 'a"\n  ProxyCommand touch pwned\n#',
    "variable": "${HOME}",
    "backslash": "a\\",
    "escape": "a\x1b[2J",
    "bidi": "a\u202eb",
}
COMMANDS = {
    "check": ("sparkrack", "check"),
    "plan": ("sparkrack", "plan"),
    "apply": ("sparkrack", "apply", "-y"),
    "drift": ("sparkrack", "drift"),
    "verify": ("sparkrack", "verify"),
    "status": ("sparkrack", "status"),
    "topology": ("sparkrack", "topology", "--seen"),
    "unlock": ("sparkrack", "unlock", "x"),
    "reboot": ("sparkrack", "reboot", "-y"),
    "driver": ("sparkrack", "upgrade", "driver", "spark1"),
    "bootstrap": ("sparkrack", "bootstrap", "nodes"),
    "restore": ("sparkrack", "switch", "restore", "--last"),
    "pyinfra": ("pyinfra", "inventory.py", "deploy.py", "--dry"),
}
SAID = 'cannot stand in an OpenSSH configuration; use a path without quotation marks, backslashes, "${" and control'


@pytest.mark.parametrize(
    ("folder", "name"), [("line break", name) for name in COMMANDS] + [(folder, "status") for folder in FOLDERS]
)
def test_it_is_refused_before_any_connection(folder: str, name: str, tmp_path: Path) -> None:
    place = tmp_path / FOLDERS[folder]
    place.mkdir(parents=True)
    rack = place / "rack.yaml"
    rack.write_text(changed(SWITCH, ("~/.ssh/id_ed25519", str(tmp_path / "key"))))
    (tmp_path / "key").touch()
    (place / "known_hosts").touch()
    state = str(tmp_path / "state")
    ended = command(*COMMANDS[name], python_path=guarded(tmp_path), RACK=str(rack), XDG_STATE_HOME=state)
    assert ended.code == 1, ended.text
    assert f": access.known_hosts: {tmp_path}" in ended.text
    assert SAID in ended.text
    assert "Traceback" not in ended.text
    assert "\x1b" not in ended.text
    assert not list(Path.cwd().glob("pwned")) + list(tmp_path.rglob("pwned"))
