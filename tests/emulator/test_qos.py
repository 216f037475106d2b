"""The switch chip's QoS tables: builtin rows, what may be written, and what an older version lacks."""

from __future__ import annotations

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, attributes, trap
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect

SWITCH = "/interface/ethernet/switch"
QOS = f"{SWITCH}/qos"
PORT, QUEUE = f"{QOS}/port", f"{QOS}/tx-manager/queue"


def done(client: RawClient, *words: str) -> str:
    """Send a command that must succeed; gives the id it returned, if any."""
    answers = client.ask(*words)
    assert [answer[0] for answer in answers] == ["!done"], answers
    return attributes(answers[0]).get("ret", "")


def recipe(client: RawClient) -> None:
    """MikroTik's settings for lossless RoCE, on one port (manual, 'RDMA over Converged Ethernet')."""
    done(client, f"{QOS}/profile/add", "=name=roce", "=dscp=26", "=traffic-class=3")
    done(client, f"{QOS}/profile/add", "=name=cnp", "=dscp=48", "=traffic-class=6")
    done(client, f"{QUEUE}/set", "=.id=*1", "=schedule=high-priority-group", "=weight=1")
    done(client, f"{QUEUE}/set", "=.id=*3", "=schedule=high-priority-group", "=weight=1", "=ecn=yes")
    done(client, f"{QUEUE}/set", "=.id=*6", "=schedule=strict-priority")
    done(client, f"{QOS}/priority-flow-control/add", "=name=pfc-tc3", "=traffic-class=3", "=rx=yes", "=tx=yes")
    words = ["=trust-l3=keep", "=pfc=pfc-tc3", "=egress-rate-queue3=200G"]
    done(client, f"{PORT}/set", "=numbers=qsfp56-dd-1-1", *words)
    done(client, f"{QOS}/settings/set", "=lossless-traffic-class=3", "=lossless-buffers=auto")


def test_a_new_chip_has_only_builtin_rows(raw: RawClient) -> None:
    assert one(raw, SWITCH)["type"] == "Marvell-98DX7335"
    profile = one(raw, f"{QOS}/profile")
    wanted = {"name": "default", "dscp": "0", "pcp": "0", "traffic-class": "1", "automap": "true", "default": "true"}
    assert profile == profile | wanted | {".id": "*0", "hw-offloaded": "true"}
    assert [row["name"] for row in rows(raw, f"{QOS}/tx-manager")] == ["default", "offline"]
    pfc = one(raw, f"{QOS}/priority-flow-control")
    assert (pfc["name"], pfc["rx"], pfc["tx"]) == ("disabled", "false", "false")
    assert one(raw, f"{QOS}/map")["name"] == "default"
    settings = one(raw, f"{QOS}/settings")
    assert (settings["lossless-traffic-class"], settings["lossless-buffers"]) == ("auto", "auto")
    ports = rows(raw, PORT)
    assert len(ports) == 35
    assert ports[-1]["name"] == "switch1-cpu"
    fabric = {(row["profile"], row["map"], row["trust-l3"], row["pfc"], row["tx-manager"]) for row in ports[:-1]}
    assert fabric == {("default", "default", "ignore", "disabled", "default")}
    assert not any(name.startswith("egress-rate") for row in ports for name in row)


def test_the_queues_of_the_manual(raw: RawClient) -> None:
    queues = rows(raw, QUEUE)
    assert [(row["traffic-class"], row["schedule"], row.get("weight")) for row in queues] == [
        ("0", "low-priority-group", "1"),
        ("1", "low-priority-group", "2"),
        ("2", "low-priority-group", "3"),
        ("3", "high-priority-group", "3"),
        ("4", "high-priority-group", "4"),
        ("5", "high-priority-group", "5"),
        ("6", "strict-priority", None),
        ("7", "strict-priority", None),
    ]
    assert {row["tx-manager"] for row in queues} == {"default"}


def test_the_recipe_reads_back_normalised(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    recipe(client)
    port = one(client, PORT, "?name=qsfp56-dd-1-1")
    assert (port["trust-l3"], port["pfc"], port["egress-rate-queue3"]) == ("keep", "pfc-tc3", "200000000000")
    queues = {row["traffic-class"]: row for row in rows(client, QUEUE)}
    assert (queues["3"]["ecn"], queues["3"]["ecn-actual"], queues["3"]["weight"]) == ("true", "true", "1")
    assert "weight" not in queues["6"]
    assert one(client, f"{QOS}/priority-flow-control", "?name=pfc-tc3")["traffic-class"] == "3"
    assert one(client, f"{QOS}/settings")["lossless-traffic-class"] == "3"
    crs812.stop()
    crs812.start()
    again = connect(crs812)
    assert one(again, PORT, "?name=qsfp56-dd-1-1")["pfc"] == "pfc-tc3"


def test_a_queue_of_strict_priority_has_no_weight(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, f"{QUEUE}/set", "=.id=*3", "=schedule=strict-priority")
    assert "weight" not in one(client, QUEUE, "?traffic-class=3")
    done(client, f"{QUEUE}/set", "=.id=*3", "=schedule=high-priority-group")
    assert one(client, QUEUE, "?traffic-class=3")["weight"] == "1"


def test_automap_makes_dynamic_rows_that_come_and_go(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)

    def mapped(table: str, key: str) -> dict[str, tuple[str, str]]:
        return {row[key]: (row["profile"], row["dynamic"]) for row in rows(client, f"{QOS}/map/{table}")}

    assert mapped("ip", "dscp") == {"0": ("default", "true")}
    recipe(client)
    assert mapped("ip", "dscp") == {"0": ("default", "true"), "26": ("roce", "true"), "48": ("cnp", "true")}
    assert mapped("vlan", "pcp") == {"0": ("default", "true")}, "the older profile keeps a value two claim"
    done(client, f"{QOS}/map/ip/add", "=dscp=48", "=profile=roce")
    assert mapped("ip", "dscp")["48"] == ("roce", "false")
    done(client, f"{QOS}/profile/set", "=numbers=roce", "=automap=no")
    assert "26" not in mapped("ip", "dscp")
    done(client, f"{QOS}/profile/set", "=numbers=roce", "=automap=yes", "=pcp=3")
    assert mapped("vlan", "pcp")["3"] == ("roce", "true")
    dynamic = one(client, f"{QOS}/map/ip", "?dscp=26")
    assert trap(client.ask(f"{QOS}/map/ip/remove", f"=.id={dynamic['.id']}")) == "no such item"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("200G", "200000000000"),
        ("100.0Gbps", "100000000000"),
        ("10M", "10000000"),
        ("25000000000", "25000000000"),
        ("2.5G", "2500000000"),
        ("0", "0"),
        ("", None),
    ],
)
def test_rates_are_plain_bits(raw: RawClient, written: str, printed: str | None) -> None:
    done(raw, f"{PORT}/set", "=numbers=sfp56-1", f"=egress-rate-queue3={written}")
    assert one(raw, PORT, "?name=sfp56-1").get("egress-rate-queue3") == printed
    done(raw, f"{PORT}/unset", "=numbers=sfp56-1", "=value-name=egress-rate-queue3")
    assert "egress-rate-queue3" not in one(raw, PORT, "?name=sfp56-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [f"{PORT}/set", "=numbers=sfp56-1", "=egress-rate-queue3=fast"],
            "invalid value for argument egress-rate-queue3",
        ),
        ([f"{PORT}/set", "=numbers=sfp56-1", "=egress-rate-queue8=1G"], "unknown parameter egress-rate-queue8"),
        ([f"{PORT}/set", "=numbers=sfp56-1", "=pfc=none"], "input does not match any value of pfc"),
        ([f"{PORT}/set", "=numbers=sfp56-1", "=profile=none"], "input does not match any value of profile"),
        ([f"{PORT}/set", "=numbers=sfp56-1", "=trust-l3=yes"], "input does not match any value of trust-l3"),
        ([f"{PORT}/set", "=numbers=sfp56-1", "=name=x"], "unknown parameter name"),
        ([f"{PORT}/set", "=numbers=switch1-cpu", "=trust-l3=keep"], "failure: can not change the port of the CPU"),
        ([f"{PORT}/add", "=name=x"], "no such command"),
        ([f"{PORT}/remove", "=numbers=sfp56-1"], "no such command"),
        ([f"{QUEUE}/add", "=tx-manager=default"], "no such command"),
        ([f"{QUEUE}/remove", "=numbers=*0"], "no such command"),
        ([f"{QUEUE}/set", "=numbers=*0", "=tx-manager=offline"], "unknown parameter tx-manager"),
        ([f"{QUEUE}/set", "=numbers=*0", "=use-shared-buffers=yes"], "unknown parameter use-shared-buffers"),
        ([f"{QUEUE}/set", "=numbers=*0", "=weight=256"], "value of weight out of range (0..255)"),
        ([f"{QOS}/profile/add", "=dscp=26"], "missing =name="),
        ([f"{QOS}/profile/add", "=name=x", "=dscp=64"], "value of dscp out of range (0..63)"),
        ([f"{QOS}/profile/add", "=name=default"], "failure: already have such entry"),
        ([f"{QOS}/profile/remove", "=numbers=default"], "failure: can not remove default entry"),
        ([f"{QOS}/profile/disable", "=numbers=default"], "failure: can not disable default entry"),
        ([f"{QOS}/tx-manager/remove", "=numbers=offline"], "failure: can not remove default entry"),
        ([f"{QOS}/map/remove", "=numbers=default"], "failure: can not remove default entry"),
        ([f"{QOS}/map/ip/add", "=dscp=26"], "missing =profile="),
        ([f"{QOS}/map/ip/add", "=profile=default"], "missing =dscp="),
        ([f"{QOS}/map/ip/add", "=dscp=5", "=profile=none"], "input does not match any value of profile"),
        ([f"{QOS}/map/vlan/add", "=pcp=8", "=profile=default"], "value of pcp out of range (0..7)"),
        ([f"{QOS}/priority-flow-control/add", "=name=x"], "missing =traffic-class="),
        (
            [f"{QOS}/priority-flow-control/add", "=name=x", "=traffic-class=8"],
            "value of traffic-class out of range (0..7)",
        ),
        ([f"{QOS}/priority-flow-control/set", "=numbers=disabled", "=rx=yes"], "failure: can not change default entry"),
        ([f"{QOS}/priority-flow-control/remove", "=numbers=disabled"], "failure: can not remove default entry"),
        ([f"{QOS}/settings/set", "=mirror-buffers=10%"], "unknown parameter mirror-buffers"),
        ([f"{QOS}/settings/set", "=lossless-buffers=101%"], "value of lossless-buffers out of range (0..100)"),
        ([f"{QOS}/settings/add", "=wred-threshold=low"], "no such command"),
        ([f"{QOS}/monitor", "=numbers=0"], "unknown parameter numbers"),
        ([f"{QOS}/print"], "no such command"),
        ([f"{SWITCH}/set", "=numbers=switch1", "=type=x"], "unknown parameter type"),
        ([f"{SWITCH}/add", "=name=switch2"], "no such command"),
    ],
)
def test_refusals(raw: RawClient, words: list[str], message: str) -> None:
    assert trap(raw.ask(*words)) == message


def test_offload_cannot_be_switched_off(raw: RawClient) -> None:
    done(raw, f"{SWITCH}/set", "=numbers=switch1", "=qos-hw-offloading=no")
    assert one(raw, SWITCH)["qos-hw-offloading"] == "true"


def test_ranges_are_joined_and_overlaps_refused(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, f"{QOS}/map/vlan/add", "=pcp=4,1,3", "=profile=default")
    assert one(client, f"{QOS}/map/vlan", "?dynamic=false")["pcp"] == "1,3-4"
    assert trap(client.ask(f"{QOS}/map/vlan/add", "=pcp=4-5", "=profile=default")) == "failure: already have such entry"
    done(client, f"{QOS}/map/vlan/add", "=pcp=4-5", "=dei-only=yes", "=profile=default")
    done(client, f"{QOS}/map/add", "=name=other")
    done(client, f"{QOS}/map/vlan/add", "=pcp=4-5", "=map=other", "=profile=default")
    done(client, f"{QOS}/priority-flow-control/add", "=name=two", "=traffic-class=4,3")
    assert one(client, f"{QOS}/priority-flow-control", "?name=two")["traffic-class"] == "3,4"


def test_a_manager_brings_its_queues_and_takes_them_along(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, f"{QOS}/tx-manager/add", "=name=slow")
    assert [row[".id"] for row in rows(client, QUEUE, "?tx-manager=slow")] == [f"*{n:X}" for n in range(8, 16)]
    done(client, f"{PORT}/set", "=numbers=sfp56-1", "=tx-manager=slow")
    done(client, f"{QOS}/tx-manager/set", "=numbers=slow", "=name=slower")
    assert len(rows(client, QUEUE, "?tx-manager=slower")) == 8
    assert one(client, PORT, "?name=sfp56-1")["tx-manager"] == "slower"
    client.ask("/safe-mode/take")
    done(client, f"{QOS}/tx-manager/remove", "=numbers=slower")
    assert len(rows(client, QUEUE)) == 8
    client.ask("/safe-mode/unroll")
    assert len(rows(client, QUEUE, "?tx-manager=slower")) == 8
    assert one(client, PORT, "?name=sfp56-1")["tx-manager"] == "slower"


def test_a_port_follows_its_interfaces_name_and_a_disabled_profile_stops_its_map(
    crs812: Crs812Process, connect: Connect
) -> None:
    client = connect(crs812)
    done(client, "/interface/ethernet/set", "=numbers=sfp56-1", "=name=uplink")
    assert one(client, PORT, "?name=uplink")["profile"] == "default"
    done(client, f"{QOS}/profile/add", "=name=roce", "=dscp=26", "=automap=no")
    done(client, f"{QOS}/map/ip/add", "=dscp=26", "=profile=roce")
    done(client, f"{QOS}/profile/disable", "=numbers=roce")
    row = one(client, f"{QOS}/map/ip", "?dscp=26")
    assert (row["inactive"], row["hw-offloaded"]) == ("true", "false")


def test_monitor_tells_the_pools(raw: RawClient) -> None:
    (answer, _done) = raw.ask(f"{QOS}/monitor", "=once=")
    pools = attributes(answer)
    assert pools["lossless-pool-byte-use"] == "0"
    assert int(pools["lossless-pool-byte-cap"]) > 0
    assert not any("packet" in name for name in pools)


OLD = [
    ([f"{QOS}/profile/add", "=name=x", "=automap=yes"], "unknown parameter automap"),
    ([f"{QUEUE}/set", "=numbers=*3", "=ecn=yes"], "unknown parameter ecn"),
    ([f"{PORT}/set", "=numbers=sfp56-1", "=pfc=disabled"], "unknown parameter pfc"),
    ([f"{QOS}/settings/set", "=lossless-traffic-class=3"], "unknown parameter lossless-traffic-class"),
    ([f"{QOS}/settings/set", "=lossless-buffers=auto"], "unknown parameter lossless-buffers"),
    ([f"{QOS}/settings/get", "=value-name=lossless-buffers"], "unknown value name"),
    (
        [f"{QOS}/profile/unset", "=numbers=default", "=value-name=automap"],
        "input does not match any value of value-name",
    ),
    ([f"{QOS}/priority-flow-control/print"], "no such command prefix"),
    ([f"{PORT}/set", "=numbers=sfp56-1", "=egress-rate-queue3=100.1Gbps"], "failure: max bit rate is 100G"),
]


def test_what_a_version_before_7_23_lacks(make_switch: MakeSwitch, connect: Connect) -> None:
    client = connect(make_switch(version="7.22.1 (stable)"))
    for words, message in OLD:
        assert trap(client.ask(*words)) == message, words
    done(client, f"{PORT}/set", "=numbers=sfp56-1", "=egress-rate-queue3=100.0Gbps")
    assert "pfc" not in one(client, PORT, "?name=sfp56-1")
    assert not {"ecn", "ecn-actual"} & set(one(client, QUEUE, "?traffic-class=3"))
    assert "automap" not in one(client, f"{QOS}/profile")
    assert rows(client, f"{QOS}/map/ip") == []
    done(client, f"{QOS}/profile/add", "=name=roce", "=dscp=26", "=traffic-class=3")
    done(client, f"{QOS}/map/ip/add", "=dscp=26", "=profile=roce")
    assert [row["dscp"] for row in rows(client, f"{QOS}/map/ip")] == ["26"]


def test_counters_grow_on_request_and_can_be_reset(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, "/interface/ethernet/set", "=numbers=sfp56-1", "=name=uplink")
    grown = {"rs-fec-uncorrected": 5, "rx-pause": 2, "tx-drop-queue3-packet": 7, "pfc3-use": 9}
    for _ in range(2):
        crs812.control({"op": "counters", "interface": "sfp56-1", "add": grown})
    port = one(client, "/interface/ethernet", "?name=uplink")
    assert (port["rs-fec-uncorrected"], port["rx-pause"], port["tx-drop-queue3-packet"]) == ("10", "4", "14")
    assert "pfc3-use" not in port
    qos = one(client, PORT, "?name=uplink")
    assert (qos["rx-pause"], qos["tx-drop-queue3-packet"], qos["pfc3-use"], qos["tx-pause"]) == ("4", "14", "18", "0")
    assert one(client, "/interface/ethernet", "?name=sfp56-2")["rx-pause"] == "0"
    done(client, f"{PORT}/reset-counters", "=numbers=uplink,switch1-cpu")
    assert one(client, "/interface/ethernet", "?name=uplink")["rs-fec-uncorrected"] == "0"
    crs812.control({"op": "counters", "interface": "sfp56-1", "add": {"rx-pause": 1}})
    done(client, "/interface/ethernet/reset-counters", "=numbers=uplink")
    assert one(client, PORT, "?name=uplink")["rx-pause"] == "0"


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "counters", "interface": "sfp56-9", "add": {"rx-pause": 1}},
        {"op": "counters", "interface": "sfp56-1", "add": {"rx-hiccup": 1}},
        {"op": "counters", "interface": "sfp56-1"},
    ],
)
def test_a_wrong_counter_is_refused(shared: Crs812Process, request_: dict[str, object]) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        shared.control(request_)
