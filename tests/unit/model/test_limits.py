"""Rules of a rack file that compare two figures: the last rack that is sound, and the first that is not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.hardware import registry
from core.model import lossless_classes, rdma_flows
from core.model.fields import unfit
from core.model.schema import rack_model
from core.model.timezones import TimeZone
from core.model.yaml_reader import parse, plain
from roles.watch.options import WatchOptions
from tests.unit.model.racks import DIRECT, KEPT, SWITCH, changed, faults, loaded, ring


def test_a_pool_that_is_one_bit_too_small_is_refused_with_the_size_to_write() -> None:
    assert faults(ring(4, [0] * 4, "10.100.0.0/21")) == []
    (fault,) = faults(ring(4, [0] * 4, "10.100.0.0/22"))
    assert fault.endswith("fabric.pool: 10.100.0.0/22 holds 4 /24, and 4 cables need 8; write a /21 or larger")
    (fault,) = faults(ring(5, [0] * 5, "10.100.0.0/24"))
    assert fault.endswith("fabric.pool: 10.100.0.0/24 holds 1 /24, and 5 cables need 10; write a /20 or larger")


@pytest.mark.parametrize(("host", "sound"), [(1, True), (254, True), (255, False)])
def test_the_last_host_of_a_subnet_is_taken_and_the_next_is_not(host: int, sound: bool) -> None:
    found = faults(changed(SWITCH, ("  spark1:\n", f"  spark1:\n    host: {host}\n")))
    assert [fault.partition(": ")[2] for fault in found] == (
        [] if sound else [f"nodes.spark1.host: 192.168.100.0/24 has no host {host}; write 1 to 254, or a larger subnet"]
    )


@pytest.mark.parametrize(
    ("mtu", "l2mtu", "said"),
    [
        (9000, 9000, []),
        (9001, 9001, []),
        (
            9001,
            9000,
            [
                (
                    "switches.crs812.mtu: 9001 is larger than the l2mtu 9000; write mtu <= l2mtu <= {most}, "
                    "like 9000 and 9500"
                )
            ],
        ),
        (9000, "{most}", []),
        (9000, "{more}", ["switches.crs812.l2mtu: {more} is too large; write at most {most}"]),
    ],
)
def test_what_a_switch_takes_is_to_the_byte(mtu: int, l2mtu: object, said: list[str]) -> None:
    (most,) = {model.max_l2mtu for model in registry.MODELS if "CRS812" in model.title}
    values = {"most": most, "more": most + 1}
    text = changed(
        KEPT.replace("  vlans: [1100, 1101]\n", ""),
        ("    bridge: fabric", f"    bridge: fabric\n    mtu: {mtu}\n    l2mtu: {str(l2mtu).format(**values)}"),
    )
    assert [fault.partition(": ")[2] for fault in faults(text)] == [words.format(**values) for words in said]


@pytest.mark.parametrize(("mtu", "sound"), [(9500, True), (9501, False)])
def test_the_fabric_has_at_most_the_l2mtu_of_its_switch(mtu: int, sound: bool) -> None:
    text = changed(SWITCH, ("fabric:\n  mtu: 9000\n", f"fabric:\n  mtu: {mtu}\n"))
    assert [fault.partition(": ")[2] for fault in faults(text)] == (
        []
        if sound
        else [
            (
                "fabric.mtu: 9501 is larger than the l2mtu 9500 of crs812; write at most 9500, "
                "or raise switches.crs812.l2mtu"
            )
        ]
    )


def nested(levels: int) -> str:
    return "rack: " + "[" * levels + "]" * levels


@pytest.mark.parametrize(("levels", "whole"), [(11, True), (12, False)])
def test_a_file_is_nested_twelve_deep_at_most(levels: int, whole: bool) -> None:
    assert parse(nested(levels)).whole == whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("True", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("-12", -12),
        ("9" * 18, int("9" * 18)),
        ("9" * 19, float("9" * 19)),
        ("0o17", 15),
        ("0xfF", 255),
        ("0x" + "f" * 16, 2**64 - 1),
        ("0x" + "f" * 17, "0x" + "f" * 17),
        ("0o" + "7" * 20, 8**20 - 1),
        ("0o" + "7" * 21, "0o" + "7" * 21),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        (".Inf", math.inf),
        ("inf", "inf"),
    ],
)
def test_a_word_without_quotes_is_what_yaml_1_2_takes_it_for(text: str, value: Any) -> None:
    found = plain(text)
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_a_number_to_yaml() -> None:
    assert math.isnan(plain(".nan"))


def test_lossless_roce_has_the_values_of_the_manual() -> None:
    """MikroTik manual, "Quality of Service" (RoCE on CRS8xx): DSCP 26 with ECN is class 3, CNP with DSCP 48 class 6."""
    values = lossless_classes
    assert (values.ROCE_DSCP, values.ROCE_TRAFFIC_CLASS, values.ROCE_CLASS) == (26, 0b01101010, 3)
    assert (values.CNP_DSCP, values.CNP_CLASS) == (48, 6)


def test_what_a_half_must_carry_by_the_speed_of_its_cable() -> None:
    assert [rdma_flows.enough_for_half(leg) for leg in (25, 99, 100, 200)] == pytest.approx([20, 79.2, 80, 80])
    assert rdma_flows.STALE == (8, 25)
    assert rdma_flows.TOOL_OPTIONS == ("-D", "5", "-q", "4", "--report_gbits", "-s", "1048576")


@pytest.mark.parametrize("text", [SWITCH, DIRECT, ring(3, [0] * 3)], ids=["switch", "direct", "ring"])
def test_each_flow_has_a_port_of_its_own_below_those_of_the_kernel(text: str) -> None:
    rack = loaded(text)
    members = list(rack.nodes)
    flows = {name: rdma_flows.half_flows(rack, name, members) for name in members}
    for rank, (name, found) in enumerate(flows.items()):
        assert [flow.port for flow in found] == [18600 + 8 * rank + number for number in range(len(found))]
        assert all(flow.here.half.node == name != flow.there.half.node for flow in found)
        assert all(flow.here.interface.network == flow.there.interface.network for flow in found)
    used = {address for name in members for address in rdma_flows.used(rack, name)}
    every = [flow for found in flows.values() for flow in found]
    proving = [flow for flow in every if {flow.here, flow.there} <= used]
    assert rdma_flows.unit_flows(rack, members) == proving
    assert proving
    for flow in every:
        port = next(port for port in rack.cabling.ports_of(flow.here.half.node) if flow.here.half in port.halves)
        cable = rack.cabling.cable_of(port)
        assert cable
        assert rdma_flows.leg_gbps(rack, flow.here) == cable.gbps


def test_a_section_that_a_rack_does_not_have_is_named() -> None:
    rack = loaded(SWITCH)
    assert isinstance(rack, rack_model())
    assert rack.declared(WatchOptions) is None
    with pytest.raises(LookupError) as caught:
        rack.options(WatchOptions)
    assert str(caught.value) == f"{rack.source} has no section for WatchOptions"
    with pytest.raises(LookupError) as caught:
        rack.declared(type(rack))
    assert str(caught.value) == "Rack is the options of no role"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("blackbox: {pstore: }", "blackbox.pstore: is empty; give it a value, like true, or remove the key"),
        ("blackbox: {panic: {hung_task: }}", "blackbox.panic.hung_task: is empty; give it a value, like false, or rem"),
        ("blackbox: {panic: {oops: 'true'}}", "blackbox.panic.oops: true is not true or false; write true or false, "),
        ("watch: {psus: 3}", "watch.psus: 3 is too large; write at most 2"),
        ("watch: {psus: 0}", "watch.psus: 0 is too small; write at least 1"),
        ("watch: {psus: '2'}", 'watch.psus: "2" is a text; write 2 without quotes'),
        ("watch: {psus: 1.5}", "watch.psus: 1.5 is not a whole number; write one, like 1"),
        ("leave: [memory, memory]", "leave: lists memory twice; list every role once"),
        ("leave: [memory, docker, docke]", "leave.2: docke is not known; did you mean docker?"),
    ],
)
def test_a_wrong_value_is_reported_with_what_is_right(section: str, said: str) -> None:
    (fault,) = faults(changed(SWITCH, ("rack: two\n", f"rack: two\n{section}\n")))
    assert fault.partition(": ")[2].startswith(said)


def test_the_defaults_of_a_switch() -> None:
    switch = loaded(changed(KEPT, ("reader: {user: watcher, password: {env: READER}, port: 8443}",
                                   "reader: {password: {env: READER}}"))).switches["crs812"]  # fmt: skip
    assert switch.reader
    assert (switch.reader.user, switch.reader.port, switch.port) == ("sparkrack-reader", 443, 8729)
    assert switch.to_json()["address"] == "10.77.0.2"
    plain = loaded(changed(SWITCH, ('tls: {sha256: "' + "0" * 64 + '"}', "tls: false"))).switches["crs812"]
    assert (plain.port, plain.mtu, plain.l2mtu, plain.lossless, plain.backups) == (8728, 9000, 9500, "none", 10)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Hobart", "did you mean Australia/Hobart?"),
        ("honolulu", "did you mean Pacific/Honolulu?"),
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("xyz", "write one like Europe/Berlin"),
    ],
)
def test_a_city_or_a_slip_is_answered_with_its_time_zone(text: str, right: str) -> None:
    assert unfit(TimeZone, text) == f"there is no time zone {text}; {right}"
