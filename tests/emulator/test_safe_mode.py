"""Safe mode is bound to the session that took it, and reverts what any session changed meanwhile."""

from __future__ import annotations

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

DONE = [["!done"]]


def name(client: RawClient) -> str:
    return one(client, "/system/identity")["name"]


def test_it_is_free_on_a_new_switch(crs812: Crs812Process, connect: Connect) -> None:
    assert one(connect(crs812), "/safe-mode") == {"enabled": "false", "current": "false"}


def test_holder_and_others_see_it_differently(crs812: Crs812Process, connect: Connect) -> None:
    holder, other = connect(crs812), connect(crs812)
    assert holder.ask("/safe-mode/take") == DONE
    own, theirs = one(holder, "/safe-mode"), one(other, "/safe-mode")
    assert (own["enabled"], own["current"], own["user"]) == ("true", "true", "sparkrack")
    assert theirs == own | {"current": "false"}


@pytest.mark.parametrize("words", [[], ["=on-error=abort"], ["=on-error=ask"]])
def test_a_second_session_is_refused(crs812: Crs812Process, connect: Connect, words: list[str]) -> None:
    holder, other = connect(crs812), connect(crs812)
    holder.ask("/safe-mode/take")
    assert "safe mode is held by api:sparkrack@127.0.0.1" in trap(other.ask("/safe-mode/take", *words))
    for command in ("release", "unroll"):
        assert "does not hold" in trap(other.ask(f"/safe-mode/{command}"))
    assert one(holder, "/safe-mode")["current"] == "true"


@pytest.mark.parametrize(("words", "kept"), [("=on-error=release", "changed"), ("=on-error=unroll", "MikroTik")])
def test_a_second_session_can_take_it_over(crs812: Crs812Process, connect: Connect, words: str, kept: str) -> None:
    holder, other = connect(crs812), connect(crs812)
    holder.ask("/safe-mode/take")
    holder.ask("/system/identity/set", "=name=changed")
    assert other.ask("/safe-mode/take", words) == DONE
    assert name(other) == kept
    assert one(other, "/safe-mode")["current"] == "true"
    assert "does not hold" in trap(holder.ask("/safe-mode/release"))


def test_release_keeps(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=kept")
    assert client.ask("/safe-mode/release") == DONE
    client.close()
    assert name(connect(crs812)) == "kept"


def test_unroll_takes_back_every_kind_of_change_by_anybody(crs812: Crs812Process, connect: Connect) -> None:
    holder, other = connect(crs812), connect(crs812)
    menus = (
        "/interface/ethernet",
        "/interface/bridge",
        "/interface/bridge/port",
        "/ip/address",
        "/system/scheduler",
    )
    proplist = "=.proplist=.id,name,interface,bridge,address,disabled,comment,mtu,l2mtu,speed,auto-negotiation,hw"
    before = {menu: rows(holder, menu, proplist) for menu in menus}
    holder.ask("/safe-mode/take")
    for client, words in (
        (holder, ["/interface/ethernet/set", "=.id=*4", "=speed=100G-baseCR2", "=auto-negotiation=no"]),
        (other, ["/interface/ethernet/set", "=.id=*4,*5", "=l2mtu=9500", "=mtu=9000"]),
        (holder, ["/interface/ethernet/set", "=.id=*6", "=name=renamed"]),
        (other, ["/interface/bridge/add", "=name=second"]),
        (holder, ["/interface/bridge/port/remove", "=numbers=*0,*1"]),
        (holder, ["/interface/bridge/port/disable", "=numbers=*2"]),
        (holder, ["/interface/bridge/remove", "=numbers=bridge"]),
        (other, ["/system/scheduler/add", "=name=dead man"]),
    ):
        assert client.ask(*words)[-1][0] == "!done"
        assert {menu: rows(holder, menu, proplist) for menu in menus} != before
    assert holder.ask("/safe-mode/unroll") == DONE
    assert {menu: rows(holder, menu, proplist) for menu in menus} == before
    assert rows(other, "/system/history") == []
    assert one(holder, "/safe-mode")["enabled"] == "false"


def test_what_was_changed_before_stays(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/system/identity/set", "=name=before")
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=within")
    client.ask("/safe-mode/unroll")
    assert name(client) == "before"
    assert [row["action"] for row in rows(client, "/system/history")] == ["system identity changed"]


@pytest.mark.parametrize("how", ["close", "quit", "cut"])
def test_a_session_that_ends_unrolls(crs812: Crs812Process, connect: Connect, how: str) -> None:
    holder, other = connect(crs812), connect(crs812)
    holder.ask("/safe-mode/take")
    holder.ask("/system/identity/set", "=name=lost")
    if how == "cut":
        crs812.control({"op": "disconnect"})
        other = connect(crs812)
    elif how == "quit":
        holder.send("/quit")
    else:
        holder.close()
    until(lambda: name(other) == "MikroTik")
    assert one(other, "/safe-mode")["enabled"] == "false"


def test_a_lost_session_may_hold_on_for_a_while(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch(unroll_delay=3600)
    holder, other = connect(switch), connect(switch)
    holder.ask("/safe-mode/take")
    holder.ask("/system/identity/set", "=name=lost")
    holder.close()
    until(lambda: [row["name"] for row in rows(other, "/user/active")] == ["sparkrack"])
    assert name(other) == "lost"
    assert "held by" in trap(other.ask("/safe-mode/take"))
    assert other.ask("/safe-mode/take", "=on-error=unroll") == DONE
    assert name(other) == "MikroTik"


def test_the_delay_ends(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch(unroll_delay=0.05)
    holder, other = connect(switch), connect(switch)
    holder.ask("/safe-mode/take")
    holder.ask("/system/identity/set", "=name=lost")
    holder.close()
    until(lambda: name(other) == "MikroTik")


@pytest.mark.parametrize(("count", "held"), [(100, True), (101, False)])
def test_more_than_a_hundred_actions_end_it_silently(
    crs812: Crs812Process, connect: Connect, count: int, held: bool
) -> None:
    client, other = connect(crs812), connect(crs812)
    client.ask("/safe-mode/take")
    for number in range(count):
        assert client.ask("/system/identity/set", f"=name=n{number}") == DONE
    assert (one(client, "/safe-mode")["current"] == "true") is held
    client.close()
    until(lambda: len(rows(other, "/user/active")) == 1)
    assert name(other) == ("MikroTik" if held else "n100")


def test_history_lists_the_last_hundred_newest_first(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    for number in range(101):
        client.ask("/system/identity/set", f"=name=n{number}")
    client.ask("/interface/bridge/add", "=name=second")
    history = rows(client, "/system/history")
    assert len(history) == 100
    assert history[0]["action"] == "interface bridge added"
    assert history[0]["by"] == "api:sparkrack@127.0.0.1"
    assert {row["action"] for row in history[1:]} == {"system identity changed"}
