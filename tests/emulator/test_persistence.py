"""The switch keeps what was committed, and only that, over a restart of its process."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys

import pytest

from tests.emulator.emulator_process import REPOSITORY, Crs812Process
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until


def test_committed_changes_survive_a_restart(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/system/identity/set", "=name=crs812")
    client.ask("/interface/ethernet/set", "=numbers=*4", "=l2mtu=9500", "=comment=Kühl")
    client.ask("/interface/bridge/add", "=name=second")
    client.ask("/interface/bridge/remove", "=numbers=second")
    # Whether a port forwards is seen, not kept: ether1 does once it has settled, before as after.
    until(lambda: rows(client, "/interface/bridge/port", "?interface=ether1")[0]["status"] == "in-bridge")
    before = rows(client, "/interface/bridge/port")
    assert crs812.stop() == 0
    client = connect(crs812.start())
    assert one(client, "/system/identity")["name"] == "crs812"
    row = one(client, "/interface/ethernet", "?.id=*4")
    assert (row["l2mtu"], row["comment"]) == ("9500", "Kühl")
    until(lambda: rows(client, "/interface/bridge/port") == before)
    (done,) = client.ask("/interface/bridge/add", "=name=third")
    assert done == ["!done", "=ret=*26"], "an id must not be used twice, not even over a restart"


def test_it_is_a_program_as_well(crs812: Crs812Process) -> None:
    """As the virtual rack starts it; the other tests have it forked."""
    crs812.stop()
    command = [sys.executable, "-m", "lab.routeros_emulator", "--config"]
    file = crs812.folder / "config.json"
    with subprocess.Popen([*command, file], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        assert ready["ready"]
        with socket.create_connection(("127.0.0.1", ready["plain_port"]), timeout=60):
            process.terminate()
        assert process.wait(60) == 0
    file.write_text("{")
    refused = subprocess.run([*command, file], cwd=REPOSITORY, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "config.json" in refused.stderr


def test_it_ends_cleanly_whatever_is_going_on(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=within")
    crs812.control({"op": "fault", "kind": "delay", "match": "/interface/bridge", "seconds": 60})
    client.send("/interface/ethernet/monitor", "=numbers=ether1", "=interval=20ms", ".tag=m")
    client.send("/interface/bridge/print", ".tag=slow")
    assert client.read()[:2] == ["!re", ".tag=m"]
    assert crs812.stop() == 0
    assert one(connect(crs812.start()), "/system/identity")["name"] == "MikroTik"


def test_a_crash_in_safe_mode_brings_back_what_was_before(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/system/identity/set", "=name=before")
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=within")
    crs812.kill()
    assert one(connect(crs812.start()), "/system/identity")["name"] == "before"


def test_a_release_is_kept_over_a_crash(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=released")
    client.ask("/safe-mode/release")
    crs812.kill()
    assert one(connect(crs812.start()), "/system/identity")["name"] == "released"


def test_factory_forgets(crs812: Crs812Process, connect: Connect) -> None:
    connect(crs812).ask("/system/identity/set", "=name=old")
    crs812.stop()
    assert one(connect(crs812.start("--factory")), "/system/identity")["name"] == "MikroTik"
    crs812.stop()
    assert one(connect(crs812.start()), "/system/identity")["name"] == "MikroTik"


def test_the_saved_state_is_private_and_holds_no_password(crs812: Crs812Process, connect: Connect) -> None:
    connect(crs812).ask("/user/add", "=name=other", "=group=full", "=password=swordfish")
    text = crs812.config.state.read_text()
    assert stat.S_IMODE(crs812.config.state.stat().st_mode) == 0o600
    assert "other" in text
    assert "swordfish" not in text
    assert crs812.password not in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', json.dumps({"format": 2, "tables": 3, "next": {}})])
def test_a_spoiled_state_is_refused_with_a_reason(crs812: Crs812Process, text: str) -> None:
    crs812.stop()
    crs812.config.state.write_text(text)
    with pytest.raises(RuntimeError, match="--factory") as raised:
        crs812.start()
    assert "Traceback" not in str(raised.value)
    crs812.start("--factory")
