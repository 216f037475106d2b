"""The unit as it comes out of its box: a sticker password, open services, and the factory's configuration."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path
from typing import Any

import pytest

from lab.routeros_emulator.config import SwitchConfig, User
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient
from tests.emulator.test_tables import one, rows


@pytest.fixture
def sticker(tmp_path: Path) -> Path:
    path = tmp_path / "sticker"
    path.write_text(secrets.token_hex(5) + "\n")
    return path


@pytest.fixture
def boxed(make_switch: MakeSwitch, sticker: Path) -> Crs812Process:
    user = User(name="admin", password_file=sticker)
    return make_switch(boxed=True, users=(user,), tls_cert=None, tls_key=None)


def login(switch: Crs812Process, sticker: Path) -> RawClient:
    client = RawClient(switch.plain_port)
    client.login("admin", sticker.read_text().strip())
    return client


def test_what_is_in_the_box(boxed: Crs812Process, sticker: Path) -> None:
    client = login(boxed, sticker)
    assert [row["name"] for row in rows(client, "/user")] == ["admin"]
    assert [row["address"] for row in rows(client, "/ip/address")] == ["192.168.88.1/24"]
    assert rows(client, "/certificate") == []
    services = {row["name"]: row for row in rows(client, "/ip/service", "?dynamic=false")}
    assert [name for name, row in services.items() if row["disabled"] == "true"] == ["www-ssl"]
    assert services["api-ssl"]["certificate"] == "none"
    assert len(rows(client, "/interface/bridge/port")) == 34
    with pytest.raises(ssl.SSLError):
        RawClient(boxed.tls_port, secure=True)
    client.close()


def test_taking_it_into_use_and_putting_it_back(boxed: Crs812Process, sticker: Path) -> None:
    client = login(boxed, sticker)
    client.ask("/certificate/add", "=name=api", "=common-name=crs812", "=key-size=prime256v1")
    client.ask("/certificate/sign", "=number=api")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=api")
    client.ask("/user/add", "=name=operator", "=group=full", "=password=long-and-random")
    client.close()
    operator = RawClient(boxed.tls_port, secure=True)
    operator.login("operator", "long-and-random")
    assert operator.ask("/user/disable", "=numbers=admin") == [["!done"]]
    operator.close()
    boxed.stop()
    boxed.start()
    operator = RawClient(boxed.tls_port, secure=True)
    operator.login("operator", "long-and-random")
    operator.close()
    boxed.stop()
    boxed.start("--factory")
    client = login(boxed, sticker)
    assert rows(client, "/certificate") == []
    assert one(client, "/user")["name"] == "admin"
    client.close()


@pytest.mark.parametrize(
    "change",
    [
        {"users": ()},
        {"users": (User(name="other", password_file=Path("x")),)},
        {"tls_cert": "cert.pem", "tls_key": "key.pem"},
    ],
)
def test_what_is_not_in_the_box(tmp_path: Path, change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "address": "127.0.0.1",
        "state": tmp_path / "state.json",
        "log": tmp_path / "log",
        "users": (User(name="admin", password_file=Path("x")),),
        "boxed": True,
    }
    assert SwitchConfig(**fields).boxed
    with pytest.raises(ValueError, match="a boxed unit has the user admin"):
        SwitchConfig(**(fields | change))
