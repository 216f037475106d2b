"""REST as a client of others sees it: `requests` over www and www-ssl."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import requests

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.raw_client import RawClient
from tests.emulator.rest_client import Web, plain, secure
from tests.emulator.test_tables import rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until


@pytest.fixture(scope="module")
def web(shared: Crs812Process) -> Web:
    return plain(shared)


def error(answer: requests.Response) -> tuple[int, str | None]:
    """Status and detail of an error, whose body must agree with itself."""
    body = answer.json()
    assert body["error"] == answer.status_code
    assert body["message"] == answer.reason
    assert set(body) <= {"error", "message", "detail"}
    return answer.status_code, body.get("detail")


def test_a_list_holds_strings_only_and_agrees_with_the_api(web: Web, raw: RawClient) -> None:
    # A port of a switch that has just started comes up between two questions.
    until(lambda: web.get("/interface/bridge/port") == rows(raw, "/interface/bridge/port"))
    found = web.get("/interface/bridge/port")
    assert len(found) == 34
    assert all(isinstance(value, str) for row in found for value in row.values())


def test_a_singleton_is_an_object(web: Web) -> None:
    assert web.get("/system/identity") == {"name": "MikroTik"}
    assert web.get("/system/resource")["version"] == "7.24.6 (long-term)"


def test_one_row_by_its_id_or_its_name(web: Web) -> None:
    by_name = web.get("/interface/ethernet/qsfp56-dd-1-1")
    assert by_name["default-name"] == "qsfp56-dd-1-1"
    again = web.get(f"/interface/ethernet/{by_name['.id']}")
    assert again["name"] == "qsfp56-dd-1-1"


def test_filters_and_proplist(web: Web) -> None:
    found = web.get("/ip/service", **{"dynamic": "false", "disabled": "true", ".proplist": "name"})
    assert [row["name"] for row in found] == ["www-ssl"]
    assert all(set(row) == {".id", "name"} for row in found), "the id always comes along"
    assert web.get("/interface/ethernet", name="none") == []


def test_no_password_is_shown(web: Web) -> None:
    assert set(web.get("/user", **{".proplist": "password"})[0]) == {".id"}
    assert "password" not in json.dumps(web.get("/user"))


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/interface/ethernet/*FFFF", 404, None),
        ("GET", "/interface/ethernet/none", 404, None),
        ("GET", "/nonexistent/path", 400, "no such command or directory (nonexistent)"),
        ("GET", "/interface/fibre/x", 400, "no such command or directory (fibre)"),
        ("GET", "/interface/ethernet/print", 400, "no such command"),
        ("GET", "/ip/address/something", 400, "no such command prefix"),
        ("PUT", "/interface/ethernet", 400, "no such command"),
        ("PATCH", "/system/identity", 400, "missing or invalid resource identifier"),
        ("DELETE", "/user/*FFFF", 404, None),
        ("POST", "/interface/ethernet/explode", 400, "no such command"),
        ("OPTIONS", "/interface/ethernet", 501, None),
    ],
)
def test_errors(web: Web, method: str, path: str, status: int, detail: str | None) -> None:
    assert error(web.ask(method, path)) == (status, detail)


def test_head_is_not_implemented(web: Web) -> None:
    assert web.ask("HEAD", "/interface/ethernet").status_code == 501


def test_elsewhere_is_nothing(shared: Crs812Process) -> None:
    answer = requests.get(f"http://127.0.0.1:{shared.www_port}/", auth=(USER, shared.password), timeout=60)
    assert answer.status_code == 404


@pytest.mark.parametrize("auth", [None, (USER, "wrong"), ("nobody", "x")])
def test_who_is_not_known_is_reported_so(shared: Crs812Process, auth: tuple[str, str] | None) -> None:
    url = f"http://127.0.0.1:{shared.www_port}/rest/system/identity"
    session = requests.Session()
    session.trust_env = False
    assert error(session.get(url, auth=auth, timeout=60)) == (401, None)
    header = {"Authorization": "Basic !!!"}
    assert session.get(url, headers=header, timeout=60).status_code == 401


def test_print_by_post_with_query_and_proplist(web: Web) -> None:
    body = {".proplist": ["name", "mtu"], ".query": ["name=ether1", "name=ether2", "#|"]}
    answer = web.ask("POST", "/interface/ethernet/print", body)
    assert [(row["name"], row["mtu"]) for row in answer.json()] == [("ether1", "1500"), ("ether2", "1500")]
    assert error(web.ask("POST", "/interface/ethernet/print", {".query": "name"})) == (400, "invalid .query")


def test_monitor_once(web: Web) -> None:
    body = {"numbers": "ether1,ether2", "once": ""}
    answer = web.ask("POST", "/interface/ethernet/monitor", body)
    assert {row["name"]: row["status"] for row in answer.json()} == {"ether1": "link-ok", "ether2": "no-link"}


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
def test_a_body_that_is_not_a_json_object(web: Web, body: bytes) -> None:
    answer = web.session.post(f"{web.base}/rest/interface/ethernet/print", data=body, timeout=60)
    assert error(answer) == (400, "invalid JSON")


def test_adding_changing_and_removing(crs812: Crs812Process) -> None:
    web = plain(crs812)
    made = web.ask("PUT", "/system/script", {"name": "s", "source": ":log info x", "comment": "c"})
    assert made.status_code == 201
    assert made.json()["name"] == "s"
    changed = web.ask("PATCH", f"/system/script/{made.json()['.id']}", {"name": "t", "comment": None})
    assert (changed.status_code, changed.json()["name"]) == (200, "t")
    assert "comment" not in changed.json()
    assert web.ask("POST", "/system/identity/set", {"name": "rest"}).json() == []
    assert web.get("/system/identity") == {"name": "rest"}
    assert web.ask("DELETE", "/system/script/t").status_code == 204
    assert web.get("/system/script") == []
    assert error(web.ask("PUT", "/user", {"name": "x", "group": "nosuch"})) == (
        400,
        "input does not match any value of group",
    )
    assert crs812.stats()["writes"] == {"/system/script": 3, "/system/identity": 1}


def test_the_group_must_have_the_policies(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/user/group/add", "=name=rest-read", "=policy=read,rest-api")
    client.ask("/user/group/add", "=name=api-only", "=policy=read,write,api")
    for group in ("rest-read", "api-only"):
        client.ask("/user/add", f"=name={group}", f"=group={group}", "=password=pw-canary")
    reader = plain(crs812, "rest-read", "pw-canary")
    assert reader.get("/system/identity") == {"name": "MikroTik"}
    assert error(reader.ask("POST", "/system/identity/set", {"name": "x"})) == (400, "not enough permissions (9)")
    assert plain(crs812, "api-only", "pw-canary").ask("GET", "/system/identity").status_code == 401
    refused = RawClient(crs812.plain_port).ask("/login", "=name=rest-read", "=password=pw-canary")
    assert refused[0][0] == "!trap"


def test_www_ssl_with_a_pinned_certificate(crs812: Crs812Process, connect: Connect) -> None:
    with pytest.raises(requests.ConnectionError, match="refused"):
        secure(crs812, crs812.fingerprint).get("/system/identity")
    connect(crs812).ask("/ip/service/set", "=numbers=www-ssl", "=disabled=no", "=certificate=api-ssl")
    assert secure(crs812, crs812.fingerprint).get("/system/identity") == {"name": "MikroTik"}
    with pytest.raises(requests.exceptions.SSLError):
        secure(crs812, "0" * 64).get("/system/identity")


def test_a_connection_is_kept_and_shows_as_a_session(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    web = plain(crs812)
    for _ in range(3):
        web.get("/system/identity")
    seen = rows(client, "/user/active", "?via=rest-api")
    assert [row["name"] for row in seen] == [USER]
    (connection,) = rows(client, "/ip/service", "?name=www", "?dynamic=true")
    assert connection["connection"] == "true"
    assert connection["remote"].startswith("127.0.0.1:")
    assert len([row for row in rows(client, "/log") if "via rest-api" in row["message"]]) == 1
    web.session.close()
    until(lambda: rows(client, "/user/active", "?via=rest-api") == [])


def test_every_request_is_in_the_journal_without_its_secrets(crs812: Crs812Process) -> None:
    web = plain(crs812)
    web.get("/system/identity")
    web.ask("PUT", "/user", {"name": "x", "group": "read", "password": "canary-one with canary"})
    web.ask("GET", "/user", password="canary-two")
    plain(crs812, password="canary-three").ask("GET", "/user")
    lines = [line for line in crs812.log() if line["service"] == "www"]
    assert [(line["kind"], line["command"], line["result"]) for line in lines] == [
        ("read", "GET /system/identity", "done"),
        ("write", "PUT /user", "done"),
        ("read", "GET /user", "done"),
        ("read", "GET /user", "401 Unauthorized"),
    ]
    text = crs812.config.log.read_text()
    assert "canary" not in text
    assert crs812.password not in text


@pytest.fixture
def bare(shared: Crs812Process) -> Iterator[RawClient]:
    """A bare TCP connection to www."""
    assert shared.www_port is not None
    client = RawClient(shared.www_port)
    yield client
    client.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/2\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 20000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 200000, b"431"),
        (b"POST / HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
    ],
)
def test_what_is_not_a_request_ends_the_connection(bare: RawClient, data: bytes, status: bytes) -> None:
    bare.send_raw(data)
    line = bare.socket.recv(100).split(b"\r\n")[0]
    assert line.split(b" ")[1] == status


def test_http_1_0_gets_one_answer(bare: RawClient) -> None:
    bare.send_raw(b"GET /rest/system/identity HTTP/1.0\r\n\r\n")
    data = b""
    while more := bare.socket.recv(4096):
        data += more
    assert data.startswith(b"HTTP/1.1 401 ")
    assert b"WWW-Authenticate: Basic" in data


def test_faults_strike_rest_too(crs812: Crs812Process) -> None:
    web = plain(crs812)
    crs812.control({"op": "fault", "kind": "trap", "match": "/system/identity/print", "message": "failure: no"})
    assert error(web.ask("GET", "/system/identity")) == (400, "failure: no")
    crs812.control({"op": "fault", "kind": "drop", "on": "write", "executed": True})
    web.get("/system/identity")
    with pytest.raises(requests.ConnectionError):
        web.ask("POST", "/system/identity/set", {"name": "dropped"})
    assert web.get("/system/identity") == {"name": "dropped"}
    crs812.control({"op": "fault", "kind": "hang", "on": "write"})
    with pytest.raises(requests.ReadTimeout):
        web.session.post(f"{web.base}/rest/system/identity/set", json={"name": "hung"}, timeout=0.3)
    crs812.control({"op": "fault", "kind": "ignore", "on": "write"})
    assert web.ask("POST", "/system/identity/set", {"name": "lie"}).json() == []
    assert web.get("/system/identity") == {"name": "dropped"}


def test_a_switch_may_have_no_rest(make_switch: MakeSwitch) -> None:
    switch = make_switch(www_port=None, www_ssl_port=None)
    assert (switch.www_port, switch.rest_port) == (None, None)
