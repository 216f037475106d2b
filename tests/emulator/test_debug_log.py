"""Sentences to a switch in the debug log: each is there, and the value of no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from core.model import SecretRef
from core.routeros.errors import LoginError, SwitchError
from core.routeros.rest import Rest
from core.util.debug_log import recording
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.test_switch_api import open_session

GIVEN, WRONG, READER, COMMUNITY = "canary-given-1", "canary-wrong-2", "canary-reader-3", "canary-community-4"


def test_sentences_are_logged_and_secrets_are_not(
    crs812: Crs812Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that no reference declares as well: a password in a sentence is known by the name of its attribute."""
    monkeypatch.setenv("CANARY", crs812.password)
    assert crs812.rest_port
    with recording() as log:
        log.keep(tmp_path / "a.log")
        with open_session(crs812, password=SecretRef(env="CANARY").resolve()) as session:
            session.talk("/system/identity/print", "=.proplist=name")
            session.talk("/user/add", "=name=bob", "=group=full", f"=password={GIVEN}")
            session.talk("/system/script/add", "=name=s", f"=source=/user set bob password={GIVEN}")
            with pytest.raises(SwitchError):
                session.talk("/snmp/community/add", f"=name={COMMUNITY}", f"=authentication-password={GIVEN}", "=no=x")
            with pytest.raises(SwitchError):
                session.talk("/no/such/set", f"=encryption-password={GIVEN}")
        with pytest.raises(LoginError):
            open_session(crs812, password=SecretStr(WRONG))
        with (
            Rest(
                "127.0.0.1", crs812.rest_port, sha256=crs812.fingerprint, user=USER, password=SecretStr(READER)
            ) as rest,
            pytest.raises(SwitchError),
        ):
            rest.ask(("/system/identity/print",))
    text = (tmp_path / "a.log").read_text()
    where = f"127.0.0.1:{crs812.tls_port}"
    assert f"{where}: api: connect and log in as {USER}: answered, 0." in text
    assert f"{where}: api: /system/identity/print =.proplist=name: 1 rows, 0." in text
    assert f"{where}: api: /user/add =name=bob =group=full =password=***" in text
    assert "api: /system/script/add =name=s =source=***" in text
    assert "api: /snmp/community/add =name=*** =authentication-password=***" in text
    assert f"rest: GET /system/identity as {USER}" in text
    assert not [canary for canary in (crs812.password, GIVEN, WRONG, READER, COMMUNITY) if canary in text], text
