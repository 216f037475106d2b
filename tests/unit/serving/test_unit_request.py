"""The line with which a served unit is asked: it reaches the unit, and has no secret in an argument."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from core.model import load
from serving.options import served_units
from sparkrack.serving.unit_request import unit_request
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.rebuild.test_requests import SERVING

ONE = SERVING[: SERVING.index("    alone:")] + SERVING[SERVING.index("    one:") :]
NOTES = """\
#!/bin/sh
# Note the words, and the header and the body that come by stdin or by a file.
before=
NOTED="$NOTED.${0##*/}"
printf '%s\\n' "$0" "$@" > "$NOTED"
for word; do
  case "$before $word" in
    "-H @-" | *" curl "*"-H @-"*) cat >> "$NOTED.header" ;;
    "-H @"*) cat "${word#@}" >> "$NOTED.header" ;;
    "-d @-") cat > "$NOTED.body" ;;
  esac
  before=$word
done
"""


def noted(folder: Path, line: str, program: str = "ssh") -> tuple[list[str], str]:
    """Run the line in bash with stand-ins for ssh and curl; return the words of one of them and its header."""
    for name in ("ssh", "curl"):
        (folder / name).write_text(NOTES)
        (folder / name).chmod(stat.S_IRWXU)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NOTED": str(folder / "noted")}
    subprocess.run(["bash", "-c", line], env=environment, check=True, stdin=subprocess.DEVNULL, timeout=60)
    header = folder / f"noted.{program}.header"
    return (folder / f"noted.{program}").read_text().splitlines(), header.read_text() if header.exists() else ""


def asked(text: str, unit: str = "one") -> tuple[str, str, str]:
    rack = loaded(changed(SWITCH, ("  swap: false\n", text)))
    found = unit_request(rack, served_units(rack)[unit])
    return found.address, found.model, found.line


def test_a_unit_without_a_gateway_is_asked_on_its_head(tmp_path: Path) -> None:
    address, model, line = asked(SERVING)
    assert address == "http://127.0.0.1:8000/v1 on spark1"
    words, _ = noted(tmp_path, line)
    assert words[0].endswith("/ssh")
    assert words[words.index("ops@10.77.0.11") + 1 :] == [
        *("curl", "-sS", "http://127.0.0.1:8000/v1/chat/completions"),
        *("-H", "Content-Type:application/json", "-d", "@-"),
    ]
    body = json.loads((tmp_path / "noted.ssh.body").read_text())
    assert (body["model"], body["messages"][0]["role"]) == (model, "user")
    assert "\\" not in line
    assert line.count("'") == 2


def test_files_below_the_working_folder_are_named_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is run where it was printed."""
    file = tmp_path / "rack.yaml"
    file.write_text(changed(SWITCH, ("  swap: false\n", SERVING)))
    rack = load(file)
    monkeypatch.chdir(tmp_path)
    line = unit_request(rack, served_units(rack)["one"]).line
    assert str(tmp_path) not in line
    words, _ = noted(tmp_path, line)
    assert f"UserKnownHostsFile={rack.access.known_hosts.name}" in words


def test_the_key_of_a_unit_is_no_argument(tmp_path: Path) -> None:
    key = tmp_path / "a key"
    key.write_text("canary")
    *_, line = asked(
        SERVING.replace("memory: 0.8, state: up", f'memory: 0.8, api: {{key: {{file: "{key}"}}}}, state: up')
    )
    assert "api" not in line
    words, header = noted(tmp_path, line)
    assert header == "Authorization: Bearer canary"
    assert not any("canary" in word for word in words)


@pytest.mark.parametrize("listen", ["management", "fabric"])
def test_the_gateway_is_asked_where_this_machine_reaches_it(tmp_path: Path, listen: str) -> None:
    gateway = f"serving:\n  gateway: {{node: spark1, listen: {listen}, keys: {{alice: {{env: ALICE}}}}}}\n"
    address, _, line = asked(ONE.replace("serving:\n", gateway))
    if listen == "fabric":
        assert address.endswith(" on spark1")
        return
    assert address == "https://10.77.0.11/v1"
    words, header = noted(tmp_path, f"ALICE=canary; {line}", "curl")
    assert words[0].endswith("/curl")
    assert words[1:3] == ["-sS", "--cacert"]
    assert "https://10.77.0.11/v1/chat/completions" in words
    assert header == "Authorization: Bearer canary"
    assert "sudo cat /etc/sparkrack/gateway/gateway.pem" in line
