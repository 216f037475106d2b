"""The emulator's script interpreter: console forms in, the same changes as over the API out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.routeros_emulator.errors import TrapError
from lab.routeros_emulator.script.lexer import ScriptError
from lab.routeros_emulator.script.parser import read
from lab.routeros_emulator.sentence import MASK, mask
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.in_process_device import Bench
from tests.emulator.raw_client import trap
from tests.emulator.test_tables import one
from tests.emulator.test_wire_protocol import Connect

ETHERNET = "/interface/ethernet"
#: The first lanes of the first cage, by their factory names.
LANES = ("qsfp56-dd-1-1", "qsfp56-dd-1-3")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(bench: Bench, source: str, name: str = "s", *extra: str) -> None:
    bench.ask("/system/script/add", f"=name={name}", f"=source={source}", *extra)
    bench.ask("/system/script/run", f"=number={name}")


def comments(bench: Bench) -> dict[str, str]:
    return {row["default-name"]: row["comment"] for row in bench.rows(ETHERNET) if "comment" in row}


@pytest.mark.parametrize(
    "source",
    [
        "/interface/ethernet/set qsfp56-dd-1-1 comment=x",
        "/interface ethernet set qsfp56-dd-1-1 comment=x",
        "/interface/ethernet set numbers=qsfp56-dd-1-1 comment=x",
        "/interface/ethernet set [find default-name=qsfp56-dd-1-1] comment=x",
        "/interface/ethernet set [ find where default-name=qsfp56-dd-1-1 ] comment=x",
        '/interface/ethernet set [/interface/ethernet find where default-name="qsfp56-dd-1-1"] comment="x"',
        '/interface/ethernet set [find where default-name~"dd-1-1\\$"] comment=x',
        "/interface/ethernet set [find where .id=*4 and mtu=1500 and !comment] comment=x",
        "/interface/ethernet set [find where default-name=qsfp56-dd-1-1 and (mtu=9 or disabled=no)] comment=x",
        "/interface/ethernet\nset [ find default-name=qsfp56-dd-1-1 ] comment=\\\n    x",
        "# a comment; with /bad words\n\n/interface ethernet set \\\n  qsfp56-dd-1-1 comment=x ; # and one more",
        "{ /interface/ethernet/set qsfp56-dd-1-1 comment=x }",
        ":if ([:len [/interface/ethernet find where comment=x]] = 0) do={ /interface/ethernet/set *4 comment=x }",
        ":if ([:len [/user find]] < 1) do={ } else={ /interface/ethernet/set *4 comment=x }",
        ":do { :error stop } on-error={ /interface/ethernet/set *4 comment=x }",
        ":put hello; :log info done; /interface/ethernet/print where a!=b; /interface/ethernet/set *4 comment=x",
    ],
)
def test_forms_of_one_command(bench: Bench, source: str) -> None:
    run(bench, source)
    assert comments(bench) == {"qsfp56-dd-1-1": "x"}


def test_escapes_in_quotes(bench: Bench) -> None:
    run(bench, r'/interface/ethernet/set *4 comment="a \"b\" \\ \$c \?\_\41 d\n\te"')
    assert comments(bench) == {"qsfp56-dd-1-1": 'a "b" \\ $c ? A d\n\te'}


def test_find_may_name_many_rows_or_none(bench: Bench) -> None:
    run(bench, '/interface/ethernet/set [find where default-name~"^qsfp56-dd-1-[13]$"] comment=y'.replace("$", "\\$"))
    assert comments(bench) == dict.fromkeys(LANES, "y")
    before = len(bench.device.history.actions)
    run(bench, "/interface/ethernet/set [find where name=none] comment=z; /ip/address/remove [find comment=q]", "t")
    assert len(bench.device.history.actions) == before + 1, "nothing found is not an error and no action"


def test_commands_go_the_way_of_the_api(bench: Bench) -> None:
    run(bench, "/interface/ethernet/set *4 l2mtu=9500 mtu=9000\n/system/identity/set name=by-script")
    assert bench.one("/system/identity")["name"] == "by-script"
    newest = bench.rows("/system/history")[0]
    assert (newest["action"], newest["by"]) == ("system identity changed", "api:operator@192.0.2.1/script:s")


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("/interface/fibre/set x", "bad command name fibre (line 1 column 1)"),
        ("/system/identity/set name=a\n/interface/ethernet explode", "bad command name explode (line 2 column 21)"),
        ("/system/identity/set colour=a", "expected end of command (line 1 column 22)"),
        ('/system/identity/set name="a', "expected closing quote"),
        (":do { /system/identity/set name=a", "expected closing brace"),
        ("/interface/ethernet/set [find where] mtu=$x", "variables and expressions are not emulated"),
        (":foreach i in=x do={}", "bad command name"),
        (":delay soon", "invalid value for argument delay-time"),
        ('/interface/ethernet/set [find where name~"("] mtu=1', "bad regular expression"),
        ("/interface/ethernet/set [get *4 name] mtu=1", "only find is emulated in brackets"),
    ],
)
def test_a_script_that_cannot_be_read_does_nothing(bench: Bench, source: str, reported: str) -> None:
    bench.ask("/system/script/add", "=name=s", f"=source=/system/identity/set name=done\n{source}")
    assert bench.one("/system/script")["invalid"] == "true"
    with pytest.raises(TrapError) as raised:
        bench.ask("/system/script/run", "=number=s")
    assert reported.replace("line 2", "line 3").replace("line 1", "line 2") in raised.value.message
    assert bench.one("/system/identity")["name"] == "MikroTik"


def test_the_first_error_ends_a_script(bench: Bench) -> None:
    source = "/system/identity/set name=one\n/interface/ethernet/set *4 mtu=9999\n/system/identity/set name=two"
    with pytest.raises(TrapError) as raised:
        run(bench, source)
    assert raised.value.message == "failure: failure: could not set mtu (/interface/ethernet/set; line 2)"
    assert bench.one("/system/identity")["name"] == "one"


def test_an_error_that_is_caught_does_not(bench: Bench) -> None:
    run(bench, ':do { /ip/address/remove none } on-error={ :log warning "gone" }; /system/identity/set name=two')
    assert bench.one("/system/identity")["name"] == "two"
    assert bench.log() == ["gone"]


def test_counts_owner_and_copies(bench: Bench) -> None:
    run(bench, ":log info hello")
    bench.ask("/system/script/run", "=.id=*1")
    row = bench.one("/system/script")
    assert row == row | {"run-count": "2", "owner": "operator", "invalid": "false", "dont-require-permissions": "false"}
    assert row["last-started"] >= bench.client.since
    assert bench.log() == ["hello", "hello"]
    bench.ask("/system/script/add", "=copy-from=s", "=name=copy", client=bench.session(2, "other"))
    assert bench.one("/system/script", "?name=copy")["owner"] == "other"


def test_a_script_calls_another_but_not_itself_for_ever(bench: Bench) -> None:
    run(bench, "/system/identity/set name=inner", "inner")
    run(bench, "/system script run inner", "outer")
    assert bench.rows("/system/history")[0]["by"].endswith("/script:outer/script:inner")
    with pytest.raises(TrapError, match="too deeply"):
        run(bench, "/system/script/run loop", "loop")
    with pytest.raises(TrapError, match="no such item"):
        bench.ask("/system/script/run", "=number=none")


def test_permissions_of_a_script(bench: Bench) -> None:
    """The three cases of MikroTik's manual, 'Scripting', 'Script permissions'."""
    bench.ask("/system/script/add", "=name=bare", "=policy=", "=source=/system/identity/set name=x")
    with pytest.raises(TrapError, match=r"not enough permissions \(9\)"):
        bench.ask("/system/script/run", "=number=bare", "=use-script-permissions=")
    bench.ask("/system/script/run", "=number=bare")
    bench.ask("/system/script/add", "=name=strong", "=policy=read,write,policy", "=source=/system/identity/set name=y")
    viewer = bench.session(2, "viewer", "read")
    with pytest.raises(TrapError, match=r"not enough permissions \(9\)"):
        bench.ask("/system/script/run", "=number=strong", client=viewer)
    free = ["/system/script/add", "=name=reading", "=policy=read,write", "=source=:log info read"]
    bench.ask(*free)
    with pytest.raises(TrapError, match=r"not enough permissions \(9\)"):
        bench.ask("/system/script/run", "=number=reading", client=viewer)
    assert bench.log() == [], "a script that asks for more than its caller has does not even begin"
    bench.ask("/system/script/set", "=numbers=strong", "=dont-require-permissions=yes")
    bench.ask("/system/script/run", "=number=strong", client=viewer)
    assert bench.one("/system/identity")["name"] == "y"


def test_the_interpreter_never_fails_in_another_way(bench: Bench) -> None:
    """Every prefix of a long script is either a script or refused with a reason."""
    source = (
        ':do { /interface/ethernet set [find where default-name="qsfp56-dd-1-1" and (mtu!=1500 or !comment)] '
        'mtu=1500 comment="a\\"b" } on-error={ :log error "x" }\n:if ([:len [/user find]] = 0) do={ :delay 1s }'
    )
    read_at_all = 0
    for end in range(len(source) + 1):
        try:
            read(source[:end], bench.device.menus, bench.device.version)
        except ScriptError:
            continue
        read_at_all += 1
    assert 2 <= read_at_all < len(source)


def test_run_over_the_wire_answers_when_the_script_has_ended(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    source = "/system/identity/set name=a\n:delay 100ms\n/system/identity/set name=b"
    client.ask("/system/script/add", "=name=slow", f"=source={source}")
    client.send("/system/script/run", "=number=slow", ".tag=1")
    assert one(connect(crs812), "/system/identity")["name"] == "a"
    assert client.read() == ["!done", ".tag=1"]
    assert one(client, "/system/identity")["name"] == "b"
    client.ask("/system/script/add", "=name=bad", '=source=:delay 10ms; /system/identity/set name="" ; :error stop')
    assert trap(client.ask("/system/script/run", "=number=bad")) == "failure: stop"


@pytest.mark.parametrize(
    "source",
    [
        '/user add password="a canary"',
        '/user add password="a \\" canary"',
        '/system/scheduler/add on-event="/user add password=\\"a canary\\" name=x"',
        "/user add password=canary",
    ],
)
def test_no_password_in_a_script_gets_into_the_journal(source: str) -> None:
    assert "canary" not in mask(f"=source={source}")
    assert MASK in mask(f"=source={source}")
