"""Who forwards the frames of a leg, by two readings of its counters."""

from __future__ import annotations

import pytest

from core.routeros.change_plan import SPARE, ChangeBatch, ChangePlan
from core.routeros.menus import ETHERNET
from switch.offload import LEAST_FRAMES, Forwarding, forwarding, rebind, rebinds
from switch.plan import plan
from switch.transaction import MOST_WRITES
from tests.unit.switch.racks import EVERY_KEY, MakeRack
from tests.unit.switch.rows import QOS, factory, reading, row

LEG = "qsfp56-dd-1-1"
PORT = "/interface/bridge/port"


def counted(received: int | str | None, by_cpu: int | str | None) -> list[dict[str, str]]:
    reported = {"rx-packet": received, "driver-rx-packet": by_cpu}
    return [{"default-name": LEG, **{name: str(count) for name, count in reported.items() if count is not None}}]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (counted(5, 5), counted(5 + 10 * LEAST_FRAMES, 5), Forwarding()),
        (counted(5, 5), counted(5 + 10 * LEAST_FRAMES, 25), Forwarding()),
        (counted(5, 5), counted(1005, 1005), Forwarding(by_cpu=(LEG,))),
        (counted(5, 5), counted(1005, 505), Forwarding(by_cpu=(LEG,))),
        (counted(5, 5), counted(5, 5), Forwarding(unseen=(LEG,))),
        (counted(5, 5), counted(12, 12), Forwarding(unseen=(LEG,))),  # ARP and LLDP of an idle leg
        (counted(5000, 5), counted(7, 0), Forwarding(unseen=(LEG,))),  # the counters were reset
        (counted(None, None), counted(None, None), Forwarding(unseen=(LEG,))),
        (counted(5, None), counted(1005, None), Forwarding(unseen=(LEG,))),
        (counted("many", 5), counted(1005, 5), Forwarding(unseen=(LEG,))),
        ([], [], Forwarding(unseen=(LEG,))),
    ],
)
def test_the_counters_tell(before: list[dict[str, str]], after: list[dict[str, str]], found: Forwarding) -> None:
    assert forwarding(before, after, [LEG]) == found


def test_the_ports_of_legs_that_are_offloaded_are_bound_again(rack: MakeRack) -> None:
    tables = factory()
    row(tables, "qsfp56-dd-1-1")["name"] = "rack-a"
    row(tables, LEG, PORT, "interface")["interface"] = "rack-a"
    row(tables, "qsfp56-dd-1-3", PORT, "interface")["hw"] = "false"  # the plan itself sets it
    row(tables, "qsfp56-dd-1-5", PORT, "interface")["disabled"] = "true"
    row(tables, LEG, f"{QOS}/port", "name")["name"] = "rack-a"
    tables[PORT] = [entry for entry in tables[PORT] if entry["interface"] != "qsfp56-dd-2-1"]
    batches = {batch.title.split(",")[0]: batch for batch in plan(*rack(), reading(tables)).batches}
    ids = [row(tables, name, PORT, "interface")[".id"] for name in ("rack-a", "qsfp56-dd-1-7")]
    assert batches["cage qsfp56-dd-1"].rebinds == tuple(ids)
    assert batches["cage qsfp56-dd-2"].rebinds == ()
    assert rebinds(reading(tables), ()) == ()


def test_each_leg_is_bound_again_once_after_the_last_that_takes_it_down(rack: MakeRack) -> None:
    batches = [b for b in plan(*rack(), reading(factory())).batches if b.changes[0].menu is ETHERNET]
    assert [len(batch.rebinds) for batch in batches] == [0, 4, 1]


def test_what_is_bound_again_counts_among_the_rows_of_one_safe_mode(rack: MakeRack) -> None:
    todo = plan(*rack(**EVERY_KEY), reading(factory()))
    assert max(sum(batch.size for batch in portion) for portion in todo.portions(MOST_WRITES)) <= 96
    change = todo.changes[0]
    ports = tuple(f"*{number}" for number in range(SPARE))
    two = ChangePlan((ChangeBatch("a", "", (change,), rebinds=ports), ChangeBatch("b", "", (change,))))
    assert [len(portion) for portion in two.portions(3)] == [1, 1]
    assert [len(portion) for portion in two.portions(2 * SPARE)] == [2]


def test_a_port_is_bound_to_the_chip_again_by_turning_it_off_and_on() -> None:
    assert rebind(("*1", "*2")) == (
        ("/interface/bridge/port/set", "=.id=*1,*2", "=hw=no"),
        ("/interface/bridge/port/set", "=.id=*1,*2", "=hw=yes"),
    )
