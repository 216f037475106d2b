"""/user/group: policies are kept as the device prints them, and they bind."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.routeros_emulator.errors import TrapError
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.in_process_device import Bench, limited
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.test_tables import one
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

DENIED = "not enough permissions (9)"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_groups_of_the_factory(bench: Bench) -> None:
    groups = {row["name"]: row["policy"] for row in bench.rows("/user/group")}
    both = "local,telnet,ssh,reboot,read,{}test,winbox,password,web,sniff,sensitive,api,romon,rest-api,"
    assert groups == {
        "read": both.format("") + "!ftp,!write,!policy",
        "write": both.format("write,") + "!ftp,!policy",
        "full": "local,telnet,ssh,ftp,reboot,read,write,policy,test,winbox,password,web,sniff,sensitive,api,romon,"
        "rest-api",
    }


def test_policies_are_normalised(bench: Bench) -> None:
    bench.ask("/user/group/add", "=name=viewer", "=policy=rest-api,!ftp,read")
    denied = (
        "!local,!telnet,!ssh,!ftp,!reboot,!write,!policy,!test,!winbox,!password,!web,!sniff,!sensitive,!api,!romon"
    )
    assert bench.one("/user/group", "?name=viewer")["policy"] == f"read,rest-api,{denied}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/user/group/add", "=name=x", "=policy=everything"], "input does not match any value of policy"),
        (["/user/group/add", "=name=full"], "failure: group with the same name already exists"),
        (["/user/group/remove", "=numbers=read"], "failure: can not remove default group"),
        (["/user/add", "=name=x", "=group=none"], "input does not match any value of group"),
        (["/user/group/set", "=numbers=full", "=colour=x"], "unknown parameter colour"),
    ],
)
def test_refusals(bench: Bench, words: list[str], message: str) -> None:
    with pytest.raises(TrapError) as raised:
        bench.ask(*words)
    assert raised.value.message == message


def test_a_group_in_use_stays_and_a_renamed_one_keeps_its_users(bench: Bench) -> None:
    bench.ask("/user/group/add", "=name=viewer", "=policy=read,api")
    bench.ask("/user/add", "=name=eve", "=group=viewer", "=password=x")
    with pytest.raises(TrapError, match="in use"):
        bench.ask("/user/group/remove", "=numbers=viewer")
    bench.ask("/user/group/set", "=numbers=viewer", "=name=watcher")
    assert bench.one("/user", "?name=eve")["group"] == "watcher"


@pytest.mark.parametrize(
    ("policies", "words", "allowed"),
    [
        (["read"], ["/system/identity/print"], True),
        (["write"], ["/system/identity/print"], False),
        (["read"], ["/system/identity/set", "=name=x"], False),
        (["read", "write"], ["/system/identity/set", "=name=x"], True),
        (["read", "write"], ["/user/add", "=name=x", "=group=read", "=password=x"], False),
        (["read", "policy"], ["/user/add", "=name=x", "=group=read", "=password=x"], False),
        (["write", "policy"], ["/user/add", "=name=x", "=group=read", "=password=x"], True),
        (["read", "write"], ["/user/group/add", "=name=x"], False),
        (["read"], ["/safe-mode/take"], False),
        (["read", "write"], ["/safe-mode/take"], True),
        (["read", "write"], ["/file/add", "=name=x"], False),
        (["ftp"], ["/file/add", "=name=x"], True),
        (["read", "write"], ["/system/backup/save", "=name=x"], False),
        (["read", "ftp", "policy", "sensitive"], ["/system/backup/save", "=name=x"], True),
        (["read"], ["/export"], True),
        (["read"], ["/export", "=file=x"], False),
        (["read", "ftp"], ["/export", "=file=x"], True),
        (["read", "ftp"], ["/export", "=file=x", "=show-sensitive="], False),
    ],
)
def test_what_a_policy_allows(bench: Bench, policies: list[str], words: list[str], allowed: bool) -> None:
    client = limited(bench.client, *policies)
    if allowed:
        bench.ask(*words, client=client)
        return
    with pytest.raises(TrapError) as raised:
        bench.ask(*words, client=client)
    assert raised.value.message == DENIED


def test_login_needs_the_policy_of_its_door(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch()
    admin = connect(switch)
    admin.ask("/user/group/add", "=name=web-only", "=policy=read,rest-api,web")
    admin.ask("/user/add", "=name=eve", "=group=web-only", "=password=look")
    eve = RawClient(switch.plain_port)
    assert trap(eve.ask("/login", "=name=eve", "=password=look")) == "invalid user name or password (6)"
    admin.ask("/user/group/set", "=numbers=web-only", "=policy=read,api")
    eve.login("eve", "look")
    assert trap(eve.ask("/system/identity/set", "=name=x")) == DENIED
    admin.ask("/user/group/set", "=numbers=web-only", "=policy=read,write,api")
    assert eve.ask("/system/identity/set", "=name=by-eve") == [["!done"]]
    assert one(admin, "/system/identity")["name"] == "by-eve"
    eve.close()


def test_another_user_with_full_rights_is_always_left(bench: Bench) -> None:
    bench.ask("/user/group/add", "=name=chiefs", "=policy=read,write,policy,api")
    bench.ask("/user/add", "=name=chief", "=group=chiefs", "=password=x")
    bench.ask("/user/remove", "=numbers=admin,operator")
    with pytest.raises(TrapError, match="last user"):
        bench.ask("/user/set", "=numbers=chief", "=group=read")


def test_an_exporter_on_the_binary_api_needs_the_policy_api(crs812: Crs812Process, connect: Connect) -> None:
    """The sentences of mktxp 2.1 (PyPI): as the reader that sparkrack makes its login is refused, with `api` it reads
    links."""
    owner = connect(crs812)
    for name, policy in (("reader", "read,rest-api"), ("exporter", "read,api")):
        owner.ask("/user/group/add", f"=name={name}", f"=policy={policy}")
        owner.ask("/user/add", f"=name={name}", f"=group={name}", "=password=a-long-password")
    client = RawClient(crs812.plain_port)
    assert trap(client.ask("/login", "=name=reader", "=password=a-long-password")) == (
        "invalid user name or password (6)"
    )
    client.login("exporter", "a-long-password")
    # Links come up a settle time after the start.
    until(lambda: "=status=link-ok" in client.ask("/interface/ethernet/monitor", "=numbers=0", "=once=")[0])
    client.close()
