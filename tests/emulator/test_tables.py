"""Menus as RouterOS has them: factory rows, what may be written, and how a refusal is worded."""

from __future__ import annotations

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.raw_client import RawClient, attributes, trap
from tests.emulator.test_wire_protocol import Connect

ETHERNET = "/interface/ethernet"


def rows(client: RawClient, menu: str, *words: str) -> list[dict[str, str]]:
    return [attributes(answer) for answer in client.ask(f"{menu}/print", *words) if answer[0] == "!re"]


def one(client: RawClient, menu: str, *words: str) -> dict[str, str]:
    (row,) = rows(client, menu, *words)
    return row


def test_the_ports_of_a_new_switch(raw: RawClient) -> None:
    ports = {row["name"]: row for row in rows(raw, ETHERNET)}
    lane = ports["qsfp56-dd-2-8"]
    wanted = {
        ".id": "*13",
        "default-name": "qsfp56-dd-2-8",
        "auto-negotiation": "true",
        "fec-mode": "auto",
        "mtu": "1500",
        "l2mtu": "1584",
        "disabled": "false",
        "slave": "true",
        "rs-fec-uncorrected": "0",
    }
    assert lane == lane | wanted
    assert "speed" not in lane
    assert "comment" not in lane
    in_id_order = sorted(ports.values(), key=lambda row: int(row[".id"][1:], 16))
    addresses = [int(row["mac-address"].replace(":", ""), 16) for row in in_id_order]
    assert addresses == list(range(addresses[0], addresses[0] + 34))
    assert [in_id_order[n]["name"] for n in (0, 1, 2, 10, 18, 26)] == [
        *("ether1", "ether2", "qsfp56-dd-1-1", "qsfp56-dd-2-1", "qsfp56-1-1", "sfp56-1")
    ]


def test_everything_is_in_one_offloaded_bridge(raw: RawClient) -> None:
    assert one(raw, "/interface/bridge")[".id"] == "*24"
    members = rows(raw, "/interface/bridge/port")
    assert [row[".id"] for row in members] == [f"*{n:X}" for n in range(34)]
    assert [row["interface"] for row in members] == sorted(row["interface"] for row in members)
    assert {(row["bridge"], row["hw"], row["hw-offload"]) for row in members} == {("bridge", "true", "true")}
    assert one(raw, "/ip/address")["address"] == "192.168.88.1/24"


def test_what_the_unit_says_it_is(raw: RawClient) -> None:
    assert one(raw, "/system/identity") == {"name": "MikroTik"}
    resource = one(raw, "/system/resource")
    assert resource == resource | {
        "version": "7.24.6 (long-term)",
        "cpu-count": "4",
        "architecture-name": "arm64",
    }
    assert {row["name"] for row in rows(raw, "/system/package")} == {"routeros", "switch-marvell"}
    assert len(rows(raw, "/interface")) == 35


def test_users_show_no_password(raw: RawClient) -> None:
    shown = rows(raw, "/user")
    assert {row["name"] for row in shown} == {"admin", USER}
    assert not any("password" in row for row in shown)
    assert USER in {row["name"] for row in rows(raw, "/user/active")}


def test_services_have_static_and_dynamic_rows(raw: RawClient) -> None:
    static = rows(raw, "/ip/service", "?dynamic=false")
    assert {row["name"]: row["port"] for row in static}["api-ssl"] == "8729"
    assert "reverse-proxy" in {row["name"] for row in rows(raw, "/ip/service", "?dynamic=true")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["=colour=red"], "unknown parameter colour"),
        (["=default-name=x"], "unknown parameter default-name"),
        (["=running=yes"], "unknown parameter running"),
        (["=fec-mode=rs-fec"], "input does not match any value of fec-mode"),
        (["=speed=100G"], "input does not match any value of speed"),
        (["=disabled=maybe"], "input does not match any value of disabled"),
        (["=mtu=big"], "invalid value for argument mtu"),
        (["=mtu=10"], "value of mtu out of range (68..65535)"),
        (["=mtu=1600"], "failure: could not set mtu"),
        (["=l2mtu=1400"], "failure: could not set mtu"),
        (["=l2mtu=9571"], "value of l2mtu out of range (68..9570)"),
        (["=name=sfp56-2"], "failure: already have interface with such name"),
        (["=name=bridge"], "failure: already have interface with such name"),
        (["=mac-address=12:34"], "invalid value for argument mac-address"),
        (["=loop-protect-send-interval=0s"], "value of loop-protect-send-interval out of range (1s..)"),
    ],
)
def test_refused_writes_change_nothing(raw: RawClient, words: list[str], message: str) -> None:
    stable = ("name", "mtu", "l2mtu", "fec-mode", "speed", "disabled", "mac-address")
    proplist = f"=.proplist={','.join(stable)}"
    before = rows(raw, ETHERNET, proplist)
    assert trap(raw.ask(f"{ETHERNET}/set", "=.id=sfp56-1", *words)) == message
    assert rows(raw, ETHERNET, proplist) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([f"{ETHERNET}/set", "=mtu=1500"], "missing =.id="),
        ([f"{ETHERNET}/set", "=.id=*999", "=mtu=1500"], "no such item"),
        ([f"{ETHERNET}/set", "=.id=sfp56-1,none", "=comment=x"], "no such item"),
        (["/interface/bridge/port/add", "=interface=sfp56-1"], "missing =bridge="),
        (
            ["/interface/bridge/port/add", "=interface=sfp56-1", "=bridge=bridge"],
            "device already added as bridge port",
        ),
        (
            ["/interface/bridge/port/add", "=interface=none", "=bridge=bridge"],
            "does not match any value of interface",
        ),
        (["/interface/bridge/port/set", "=.id=*0", "=bridge=none"], "does not match any value of bridge"),
        (["/interface/bridge/port/set", "=.id=*0", "=pvid=5000"], "value of pvid out of range (1..4094)"),
        (["/interface/bridge/add", "=name=bridge"], "already have interface with such name"),
        (["/ip/address/add", "=address=192.168.88.1/24", "=interface=bridge"], "already have such address"),
        (
            ["/ip/address/add", "=address=300.1.1.1/24", "=interface=bridge"],
            "invalid value for argument address",
        ),
        (["/user/add", f"=name={USER}", "=group=full"], "user with the same name already exists"),
        ([f"{ETHERNET}/monitor", "=numbers=none", "=once="], "no such item"),
        ([f"{ETHERNET}/monitor", "=once="], "missing =numbers="),
        ([f"{ETHERNET}/print", "=colour=red"], "unknown parameter colour"),
        (["/safe-mode/take", "=on-error=panic"], "input does not match any value of on-error"),
    ],
)
def test_refusals(raw: RawClient, command: list[str], message: str) -> None:
    assert message in trap(raw.ask(*command))


def test_values_are_normalised(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    words = [
        "=disabled=yes",
        "=mac-address=02-00-00-00-00-ab",
        "=loop-protect-disable-time=00:10:00",
        "=mtu=1492",
    ]
    client.ask(f"{ETHERNET}/set", "=.id=sfp56-1", *words, "=advertise=50G-baseCR,10G-baseCR")
    row = one(client, ETHERNET, "?name=sfp56-1")
    wanted = {"disabled": "true", "mac-address": "02:00:00:00:00:AB", "loop-protect-disable-time": "10m"}
    assert row == row | wanted | {"mtu": "1492", "advertise": "10G-baseCR,50G-baseCR"}
    client.ask("/interface/bridge/set", "=.id=bridge", "=priority=28672", "=ageing-time=300")
    bridge = one(client, "/interface/bridge")
    assert (bridge["priority"], bridge["ageing-time"]) == ("0x7000", "5m")


def test_unset_takes_only_the_words_of_the_command_tree(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask(f"{ETHERNET}/set", "=.id=sfp56-1", "=speed=25G-baseCR", "=sfp-shutdown-temperature=80")
    for name in ("speed", "fec-mode", "no-such-field"):
        answer = client.ask(f"{ETHERNET}/unset", "=numbers=sfp56-1", f"=value-name={name}")
        assert trap(answer) == "input does not match any value of value-name"
    word = "=value-name=sfp-shutdown-temperature"
    assert client.ask(f"{ETHERNET}/unset", "=numbers=sfp56-1", word) == [["!done"]]
    row = one(client, ETHERNET, "?name=sfp56-1")
    assert (row["speed"], row["sfp-shutdown-temperature"]) == ("25G-baseCR", "95")
    port = "/interface/bridge/port"
    client.ask(f"{port}/set", "=numbers=sfp56-1", "=path-cost=7")
    assert client.ask(f"{port}/unset", "=numbers=sfp56-1", "=value-name=path-cost") == [["!done"]]
    assert "path-cost" not in one(client, port, "?interface=sfp56-1")


def test_a_set_is_all_or_nothing_over_its_rows(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    assert "out of range" in trap(client.ask(f"{ETHERNET}/set", "=numbers=ether1,sfp56-1", "=l2mtu=9580"))
    assert {row["l2mtu"] for row in rows(client, ETHERNET)} == {"1584"}
    assert client.ask(f"{ETHERNET}/set", "=numbers=ether1,ether2", "=l2mtu=9586", "=mtu=9000") == [["!done"]]


def test_renaming_a_port_keeps_its_membership(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask(f"{ETHERNET}/set", "=.id=qsfp56-dd-1-1", "=name=spark1")
    assert one(client, "/interface/bridge/port", "?interface=spark1")["bridge"] == "bridge"
    assert one(client, ETHERNET, "?default-name=qsfp56-dd-1-1")["slave"] == "true"


def test_ports_of_a_removed_bridge_show_its_id(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/interface/bridge/remove", "=numbers=bridge")
    members = rows(client, "/interface/bridge/port")
    assert {(row["bridge"], row["hw-offload"], row["inactive"]) for row in members} == {("*24", "false", "true")}
    assert one(client, "/ip/address")["invalid"] == "true"
    (done,) = client.ask("/interface/bridge/add", "=name=bridge")
    assert attributes(done)["ret"] == "*25"


def test_only_one_bridge_is_offloaded(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/interface/bridge/add", "=name=second")
    client.ask("/interface/bridge/port/set", "=numbers=sfp56-1", "=bridge=second")
    client.ask("/interface/bridge/port/set", "=numbers=sfp56-2", "=hw=no")
    offloaded = {row["interface"]: row["hw-offload"] for row in rows(client, "/interface/bridge/port")}
    assert {name for name, value in offloaded.items() if value == "false"} == {"sfp56-1", "sfp56-2"}


def test_a_read_only_user_cannot_write(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch()
    connect(switch).ask("/user/add", "=name=viewer", "=group=read", "=password=look")
    viewer = RawClient(switch.plain_port)
    viewer.login("viewer", "look")
    assert trap(viewer.ask("/system/identity/set", "=name=x")) == "not enough permissions (9)"
    assert trap(viewer.ask("/safe-mode/take")) == "not enough permissions (9)"
    assert one(viewer, "/system/identity") == {"name": "MikroTik"}
    viewer.close()


def test_a_changed_password_counts_from_the_next_login(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/user/set", f"=numbers={USER}", "=password=another")
    other = RawClient(crs812.plain_port)
    assert "invalid user" in trap(other.ask("/login", f"=name={USER}", f"=password={crs812.password}"))
    other.login(USER, "another")
    other.close()


def test_the_last_full_user_stays(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/user/disable", "=numbers=admin")
    assert "last user" in trap(client.ask("/user/disable", f"=numbers={USER}"))
    assert "last user" in trap(client.ask("/user/remove", f"=numbers={USER}"))


def test_a_disabled_service_takes_no_connection(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/ip/service/set", "=numbers=api-ssl", "=disabled=yes")
    with pytest.raises(ConnectionRefusedError):
        RawClient(crs812.tls_port, secure=True)
    client.ask("/ip/service/set", "=numbers=api", "=available-from=10.0.0.0/8")
    assert RawClient(crs812.plain_port).closed()
    assert one(client, "/system/identity") == {"name": "MikroTik"}
