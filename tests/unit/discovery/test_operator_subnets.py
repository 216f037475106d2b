"""The subnets from which this machine reaches a rack, in the routes of this machine itself."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from sparkrack.discovery.operator_subnets import operator_subnets


def test_the_subnet_of_the_interface_that_reaches_the_hosts() -> None:
    assert operator_subnets(["127.0.0.9", "127.0.88.11"], None) == (["127.0.0.0/8"], "")


@pytest.mark.parametrize(
    ("session", "added"), [("127.0.0.1", []), ("10.9.8.7", ["10.9.8.7/32"])], ids=["seen as itself", "behind NAT"]
)
def test_the_address_that_the_switch_sees_is_always_inside(session: str, added: list[str]) -> None:
    assert operator_subnets(["127.0.0.9"], IPv4Address(session)) == (["127.0.0.0/8", *added], "")


def test_a_host_without_a_route_gives_no_subnet() -> None:
    found, why = operator_subnets(["127.0.0.9", "255.255.255.255"], None)
    assert found == []
    assert why.startswith("the route from this machine to the rack is unknown: ")
