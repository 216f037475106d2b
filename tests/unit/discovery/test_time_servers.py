"""The time servers that `sparkrack init` offers: those that the nodes have, with where they come from."""

from __future__ import annotations

import pytest

from sparkrack.discovery.node_facts import NodeFacts
from sparkrack.discovery.rack_questions import offered_time
from tests.unit.discovery.worlds import printed, world
from tests.unit.model.racks import RING, SWITCH, loaded

SYNCD, FROM_FACTORY = "systemd-timesyncd.service 0", "FallbackNTPServers=ntp.ubuntu.com"


def reported(**servers: str) -> dict[str, NodeFacts]:
    """The facts of the nodes of a ring; `servers`: what a node reports instead of the state from the factory."""
    made = world(loaded(RING))
    for name, line in servers.items():
        made.nodes[name]["time-servers"] = printed(SYNCD, line) if line else printed(code=1)
    return made.facts()


@pytest.mark.parametrize(
    ("servers", "offered", "why"),
    [
        ({}, ["ntp.ubuntu.com"], "which spark1, spark2, spark3 have"),
        ({"spark1": "SystemNTPServers=10.0.0.1"}, ["ntp.ubuntu.com"], "which spark2, spark3 have; others: spark1"),
        (
            {"spark1": "SystemNTPServers=10.0.0.1 b.example", "spark2": FROM_FACTORY, "spark3": ""},
            ["10.0.0.1", "b.example"],
            "which spark1 has; others: spark2",
        ),
        (
            dict.fromkeys(("spark1", "spark2", "spark3"), ""),
            ["ntp.ubuntu.com"],
            "the default of DGX OS; no node's was read",
        ),
    ],
    ids=["all alike", "most", "the first of as many", "none was read"],
)
def test_the_servers_of_most_nodes_are_offered_and_where_they_come_from_is_said(
    servers: dict[str, str], offered: list[str], why: str
) -> None:
    assert offered_time(reported(**servers)) == (offered, why)


def test_servers_that_are_unknown_are_not_a_gap_of_adopt() -> None:
    made = world(loaded(SWITCH))
    made.nodes["spark1"]["time-servers"] = printed(SYNCD, "garbled")
    assert made.sheet().unrepresentable == world(loaded(SWITCH)).sheet().unrepresentable
    assert (
        made.facts()["spark1"].unknown["time-servers"].startswith("systemd-timesyncd.service: its servers are unknown")
    )
