"""The emulator asked by three clients from npm that others wrote, with the limits that these are known for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.npm.peer import FOLDER, ClientCrashError, ClientError, NpmClient, Row
from tests.emulator.wait import until

Open = Callable[..., NpmClient]
ETHERNET = "/interface/ethernet"
BRIDGE = "/interface/bridge"
NODE, MIKRO, ROS = "node-routeros", "mikro-routeros", "ros-client"


@pytest.fixture
def npm() -> Iterator[Open]:
    """Open connections; each is closed afterwards."""
    opened: list[NpmClient] = []

    def open_one(package: str, switch: Crs812Process, **fields: object) -> NpmClient:
        opened.append(NpmClient(package, switch, **fields))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture(params=[(NODE, False), (NODE, True), (MIKRO, False)], ids=["node", "node-tls", "mikro"])
def client(request: pytest.FixtureRequest, shared: Crs812Process, npm: Open) -> NpmClient:
    """A connection of every client over every port that it can use."""
    package, secure = request.param
    return npm(package, shared, secure=secure)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def node(request: pytest.FixtureRequest, shared: Crs812Process, npm: Open) -> NpmClient:
    return npm(NODE, shared, secure=request.param)


def names(rows: list[Row]) -> list[str]:
    return [row["name"] for row in rows]


def test_ports_are_read_with_a_query(client: NpmClient) -> None:
    (row,) = client.write(f"{ETHERNET}/print", "?name=qsfp56-dd-1-1")
    assert row == row | {".id": "*4", "mtu": "1500", "l2mtu": "1584", "auto-negotiation": "true"}
    # Two rows fit into one read: mikro-routeros loses the words of a sentence that two reads share.
    (copper,) = client.write(f"{ETHERNET}/print", "?name=ether1")
    rows = client.write(f"{ETHERNET}/print", f"?advertise={copper['advertise']}")
    assert names(rows) == ["ether1", "ether2"]


def test_a_row_is_added_found_changed_and_removed(client: NpmClient) -> None:
    client.write(f"{BRIDGE}/add", "=name=second", "=comment=probe")
    (row,) = client.write(f"{BRIDGE}/print", "?name=second")
    assert row["comment"] == "probe"
    client.write(f"{BRIDGE}/set", f"=.id={row['.id']}", "=comment=")
    (row,) = client.write(f"{BRIDGE}/print", f"?.id={row['.id']}")
    assert "comment" not in row
    client.write(f"{BRIDGE}/remove", f"=.id={row['.id']}")
    assert names(client.write(f"{BRIDGE}/print")) == ["bridge"]
    with pytest.raises(ClientError, match=r"no such item$"):
        client.write(f"{BRIDGE}/remove", f"=.id={row['.id']}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([f"{ETHERNET}/set", "=.id=*4", "=fec-mode=rs544"], "input does not match any value of fec-mode"),
        ([f"{ETHERNET}/set", "=.id=*4", "=default-name=x"], "unknown parameter default-name"),
        ([f"{BRIDGE}/add", "=name=bridge"], "failure: already have interface with such name"),
        (["/interface/fibre/print"], "no such command prefix"),
    ],
)
def test_a_trap_is_reported(client: NpmClient, words: list[str], message: str) -> None:
    with pytest.raises(ClientError) as raised:
        client.write(*words)
    assert raised.value.message.removeprefix("RouterOS Error: ") == message


@pytest.mark.parametrize(("package", "code"), [(NODE, "CANTLOGIN"), (MIKRO, None)])
def test_a_wrong_password_is_refused(shared: Crs812Process, npm: Open, package: str, code: str | None) -> None:
    with pytest.raises(ClientError, match=r"(?i)user ?name or password") as raised:
        npm(package, shared, password="wrong")
    assert raised.value.errno == code, "node-routeros knows RouterOS's words for it letter by letter"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_client_that_begins_with_a_bare_login_reads(shared: Crs812Process, npm: Open, secure: bool) -> None:
    """ros-client asks for the challenge of old releases, drops it, and logs in by name and password."""
    client = npm(ROS, shared, secure=secure)
    # It loses words that are split between two reads, so each answer here is a short one.
    assert names(client.write("/system/identity/print")) == ["MikroTik"]
    (row,) = client.write(f"{ETHERNET}/print", "=.proplist=.id,name,mtu", "?name=qsfp56-dd-1-1")
    assert row == {".id": "*4", "name": "qsfp56-dd-1-1", "mtu": "1500"}
    logins = [line["words"][0] for line in shared.log() if line.get("command") == "/login"][-2:]
    assert logins == ["/login", "/login"]
    with pytest.raises(ClientError, match="no such command prefix"):
        client.write("/interface/fibre/print")


def test_commands_run_side_by_side(node: NpmClient) -> None:
    wanted = [f"sfp56-{number}" for number in range(1, 9)]
    prints = [[f"{ETHERNET}/print", "=.proplist=name", f"?name={name}"] for name in wanted]
    assert [names(rows) for rows in node.together(*prints)] == [[name] for name in wanted]


def test_a_stream_is_cancelled_and_the_connection_goes_on(shared: Crs812Process, node: NpmClient) -> None:
    def ends() -> list[str]:
        return [line["result"] for line in shared.log() if line["command"] == f"{ETHERNET}/monitor"]

    before = ends()
    rows = node.stream(f"{ETHERNET}/monitor", "=numbers=ether1", "=interval=20ms", rows=3)
    assert set(names(rows)) == {"ether1"}
    assert len(rows) >= 3
    until(lambda: ends() == [*before, "trap: interrupted"])
    assert node.write("/system/identity/print") == [{"name": "MikroTik"}]


def test_text_is_kept_as_its_bytes(shared: Crs812Process, npm: Open) -> None:
    """node-routeros takes every text for Windows-1252, the other for UTF-8: the bytes are the same."""
    ours, theirs = npm(MIKRO, shared), npm(NODE, shared)
    text = "Kühlung – Lüfter"
    as_bytes = text.encode().decode("cp1252")
    theirs.write(f"{BRIDGE}/add", "=name=second", f"=comment={as_bytes}")
    assert [row["comment"] for row in ours.write(f"{BRIDGE}/print", "?name=second")] == [text]
    ours.write(f"{BRIDGE}/set", "=numbers=second", f"=comment={text} 冷")
    (row,) = theirs.write(f"{BRIDGE}/print", "?name=second", "=.proplist=comment")
    assert row["comment"].encode("cp1252").decode() == f"{text} 冷"
    theirs.write(f"{BRIDGE}/remove", "=numbers=second")


def test_a_client_that_leaves_gives_up_safe_mode(crs812: Crs812Process, npm: Open) -> None:
    holder, other = npm(NODE, crs812, secure=True), npm(NODE, crs812)
    holder.write("/safe-mode/take")
    holder.write("/system/identity/set", "=name=changed")
    assert names(other.write("/system/identity/print")) == ["changed"]
    assert holder.close() == 0
    until(lambda: names(other.write("/system/identity/print")) == ["MikroTik"])


def test_node_routeros_finds_nothing_before_7_18(make_switch: MakeSwitch, npm: Open) -> None:
    before = npm(NODE, make_switch(version="7.17.2"))
    assert before.write(f"{ETHERNET}/print", "?name=none") == []
    assert names(before.write(f"{ETHERNET}/print", "?name=ether1")) == ["ether1"]


def test_node_routeros_dies_of_an_answer_that_7_18_brought(shared: Crs812Process, npm: Open) -> None:
    """Its known limit: 1.6.9 throws on `!empty`, where no caller can catch it. The emulator must show that."""
    client = npm(NODE, shared)
    with pytest.raises(ClientCrashError) as raised:
        client.write(f"{ETHERNET}/print", "?name=none")
    assert raised.value.name == "RosException"
    assert raised.value.errno == "UNKNOWNREPLY"
    assert raised.value.message == "Tried to process unknown reply: !empty"
    assert client.close() == 70
    assert names(npm(NODE, shared).write("/system/identity/print")) == ["MikroTik"]


def test_what_is_installed_is_pinned() -> None:
    wanted = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    locked = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    assert locked.pop("")["dependencies"] == wanted
    for path, package in locked.items():
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package["integrity"]), path
        assert "resolved" not in package, path
    for name, version in wanted.items():
        installed = json.loads((FOLDER / "node_modules" / name / "package.json").read_text())
        assert installed["version"] == version == locked[f"node_modules/{name}"]["version"], name
