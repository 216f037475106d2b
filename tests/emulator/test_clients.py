"""The emulator asked by the two Python clients that others wrote."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import librouteros
import pytest
import routeros_api
from librouteros.exceptions import TrapError
from librouteros.query import And, Key, Or
from routeros_api.exceptions import RouterOsApiCommunicationError

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture(params=["plain", "tls"])
def libre(request: pytest.FixtureRequest, shared: Crs812Process) -> Iterator[Any]:
    """A librouteros connection, over both ports."""
    fields: dict[str, Any] = {"port": shared.plain_port}
    if request.param == "tls":
        fields = {"port": shared.tls_port, "ssl_wrapper": tls().wrap_socket}
    api = librouteros.connect("127.0.0.1", USER, shared.password, encoding="utf-8", **fields)
    yield api
    api.close()


@pytest.fixture(params=["plain", "tls"])
def pool(request: pytest.FixtureRequest, shared: Crs812Process) -> Iterator[Any]:
    """A routeros-api connection, over both ports."""
    secure = request.param == "tls"
    made = routeros_api.RouterOsApiPool(
        "127.0.0.1",
        USER,
        shared.password,
        port=shared.tls_port if secure else shared.plain_port,
        plaintext_login=True,
        use_ssl=secure,
        ssl_context=tls() if secure else None,
    )
    yield made.get_api()
    made.disconnect()


def test_librouteros_reads_the_ports(libre: Any) -> None:
    rows = list(libre.path("interface", "ethernet"))
    names = [row["name"] for row in rows]
    assert len(names) == 34
    assert names == sorted(names)
    assert rows[names.index("qsfp56-dd-1-1")][".id"] == "*4"
    assert rows[0] == rows[0] | {".id": "*2", "mtu": 1500, "l2mtu": 1584, "auto-negotiation": True}


def test_librouteros_adds_finds_changes_and_removes(libre: Any) -> None:
    bridges = libre.path("interface", "bridge")
    made = bridges.add(name="second", comment="probe")
    name, disabled = Key("name"), Key("disabled")
    assert [row[".id"] for row in bridges.select().where(name == "second")] == [made]
    bridges.update(**{".id": made, "disabled": True})
    assert [row["name"] for row in bridges.select().where(disabled == True)] == ["second"]  # noqa: E712
    bridges.remove(made)
    assert not list(bridges.select().where(name == "second"))
    with pytest.raises(TrapError, match="no such item"):
        bridges.remove(made)


def test_librouteros_sees_message_and_category(libre: Any) -> None:
    with pytest.raises(TrapError) as raised:
        libre.path("interface", "ethernet").update(**{".id": "*4", "fec-mode": "rs544"})
    assert raised.value.message == "input does not match any value of fec-mode"
    assert raised.value.category == 1


def test_librouteros_keeps_utf_8_and_clears_with_an_empty_value(libre: Any) -> None:
    ports = libre.path("interface", "ethernet")
    name, comment = Key("name"), Key("comment")
    for text in ("Kühlung – 冷却", ""):
        ports.update(**{".id": "*4", "comment": text})
        (row,) = ports.select(name, comment).where(name == "qsfp56-dd-1-1")
        assert row.get("comment", "") == text
    assert "comment" not in row


def test_librouteros_asks_with_a_stack_of_queries(libre: Any) -> None:
    name, mtu, disabled = Key("name"), Key("mtu"), Key("disabled")
    chosen = Or(And(name == "ether1", mtu == 1500), And(name == "ether2", mtu == 1499), name == "sfp56-1")
    rows = libre.path("interface", "ethernet").select(name).where(disabled == False, chosen)  # noqa: E712
    assert [row["name"] for row in rows] == ["ether1", "sfp56-1"]


@pytest.mark.parametrize("version", ["7.17.2", "7.24.6 (long-term)"])
def test_librouteros_finds_nothing(make_switch: MakeSwitch, version: str) -> None:
    switch = make_switch(version=version)
    api = librouteros.connect("127.0.0.1", USER, switch.password, port=switch.plain_port)
    assert list(api.path("interface", "ethernet").select().where(Key("name") == "none")) == []
    api.close()


def test_librouteros_loses_safe_mode_after_a_hundred_actions(crs812: Crs812Process) -> None:
    api = librouteros.connect("127.0.0.1", USER, crs812.password, port=crs812.plain_port)
    list(api("/safe-mode/take"))
    held = []
    for number in range(101):
        list(api("/system/identity/set", name=f"n{number}"))
        if number >= 99:
            held += [row["current"] for row in api("/safe-mode/print")]
    assert held == [True, False]
    api.close()


def test_librouteros_monitors_a_list(libre: Any) -> None:
    rows = list(libre("/interface/ethernet/monitor", numbers="ether1,qsfp56-dd-1-1", once=""))
    assert [row["name"] for row in rows] == ["ether1", "qsfp56-dd-1-1"]
    assert rows[0]["status"] == "link-ok"


def test_routeros_api_reads_with_filters(pool: Any) -> None:
    ports = pool.get_resource("/interface/ethernet")
    assert [row["id"] for row in ports.get(default_name="qsfp56-dd-2-1")] == ["*C"]
    assert ports.get(name="none") == []
    assert pool.get_resource("/system/routerboard").get()[0]["model"] == "CRS812-8DS-2DQ-2DDQ"


def test_routeros_api_adds_changes_and_removes(pool: Any) -> None:
    jobs = pool.get_resource("/system/scheduler")
    made = jobs.add(name="dead man", interval="00:05:00", on_event="/log info x").done_message["ret"]
    (row,) = jobs.get(name="dead man")
    assert (row["id"], row["interval"], row["policy"]) == (made, "5m", "read,write,test")
    jobs.set(id=made, comment="armed")
    assert jobs.get(id=made)[0]["comment"] == "armed"
    jobs.set(id=made, comment="")
    assert "comment" not in jobs.get(id=made)[0]
    jobs.remove(id=made)
    with pytest.raises(RouterOsApiCommunicationError) as raised:
        jobs.remove(id=made)
    assert raised.value.original_message == b"no such item"


def test_routeros_api_pipelines(pool: Any) -> None:
    ports = pool.get_resource("/interface/ethernet")
    names = ("ether1", "sfp56-1", "qsfp56-1-1")
    promises = [ports.call_async("print", {"proplist": "name"}, {"name": name}) for name in names]
    assert [promise.get()[0]["name"] for promise in promises] == list(names)


def test_a_wrong_password_is_refused_as_routeros_words_it(shared: Crs812Process) -> None:
    with pytest.raises(TrapError, match=r"invalid user name or password \(6\)"):
        librouteros.connect("127.0.0.1", USER, "wrong", port=shared.plain_port)
    pool = routeros_api.RouterOsApiPool("127.0.0.1", USER, "wrong", port=shared.plain_port, plaintext_login=True)
    with pytest.raises(RouterOsApiCommunicationError, match=r"invalid user name or password \(6\)"):
        pool.get_api()
