"""/console/inspect: a client may ask what this version knows before it sends anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.routeros_emulator.errors import TrapError
from tests.emulator.in_process_device import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def children(bench: Bench, path: str) -> dict[str, str]:
    rows = bench.ask("/console/inspect", "=request=child", f"=path={path}").rows
    assert [row["type"] for row in rows] == (["self"] + ["child"] * (len(rows) - 1) if rows else [])
    return {row["name"]: row["node-type"] for row in rows[1:]}


def test_children_of_menus_and_commands(bench: Bench) -> None:
    assert {"interface", "ip", "system", "user", "export"} <= children(bench, "").keys()
    assert children(bench, "system,ntp") == {"client": "path"}
    ethernet = children(bench, "interface,ethernet")
    assert (ethernet["switch"], ethernet["set"]) == ("path", "cmd")
    arguments = children(bench, "interface,ethernet,set")
    assert {"speed", "l2mtu", "fec-mode"} <= arguments.keys()
    assert set(arguments.values()) == {"arg"}


@pytest.mark.parametrize("path", ["interface,fibre", "interface,ethernet,set,colour", "interface,ethernet,explode,x"])
def test_what_does_not_exist_has_no_answer(bench: Bench, path: str) -> None:
    for request in ("child", "self", "syntax"):
        reply = bench.ask("/console/inspect", f"=request={request}", f"=path={path}")
        assert (list(reply.rows), reply.listing) == ([], True)


def test_an_argument_answers_for_itself(bench: Bench) -> None:
    (row,) = bench.ask("/console/inspect", "=request=self", "=path=interface,ethernet,set,speed").rows
    assert (row["name"], row["node-type"]) == ("speed", "arg")
    (row,) = bench.ask("/console/inspect", "=request=syntax", "=path=interface,ethernet,set,speed").rows
    assert row["type"] == "syntax"


@pytest.mark.parametrize(
    ("version", "menu", "known", "unknown"),
    [
        ("7.17", "ip,service,set", "address", "available-from"),
        ("7.23", "ip,service,set", "address", "available-from"),
        ("7.24", "ip,service,set", "available-from", "address"),
        ("7.23", "system,scheduler,add", "interval", "days"),
        ("7.24", "system,scheduler,add", "days", "owner"),
        ("7.17", "", "system", "safe-mode"),
        ("7.20", "", "safe-mode", "sparkle"),
    ],
)
def test_answers_follow_the_version(tmp_path: Path, version: str, menu: str, known: str, unknown: str) -> None:
    found = children(Bench(tmp_path, version=version), menu)
    assert known in found
    assert unknown not in found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["=path=ip"], "missing =request="),
        (["=request=guess"], "input does not match any value of request"),
        (["=request=child", "=colour=x"], "unknown parameter colour"),
        (["=request=completion", "=input=/ip"], "failure: request=completion is not emulated"),
    ],
)
def test_refusals(bench: Bench, words: list[str], message: str) -> None:
    with pytest.raises(TrapError) as raised:
        bench.ask("/console/inspect", *words)
    assert raised.value.message == message
