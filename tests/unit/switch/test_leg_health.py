"""Legs that are set as declared and do not link so: what is judged, by which row, and in which words."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.model import Leg, Rack, Switch
from core.routeros.errors import SentenceError, UnreadableError
from core.routeros.menus import Row, Sentence
from switch.cages import fec_of
from switch.leg_health import LegState, leg_problems, leg_state
from switch.plan import plan
from tests import generated
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.rows import QOS, Tables, carry_out, factory, reading, row

LEG = "qsfp56-dd-1-3"
UP = {"status": "link-ok", "rate": "100Gbps", "fec": "fec91"}
NOT_LINKED = "the switch does not report whether it is linked"
NO_SPEED, NO_FEC = "the switch does not report its speed", "the switch does not report its FEC"

JUDGED: list[tuple[dict[str, str], LegState]] = [
    (UP, LegState()),
    (UP | {"rate": "100000000000"}, LegState()),
    (UP | {"rate": "50Gbps"}, LegState(wrong="rate 50Gbps, wanted 100Gbps")),
    (UP | {"rate": "200Gbps"}, LegState(wrong="rate 200Gbps, wanted 100Gbps")),
    (UP | {"fec": "off"}, LegState(wrong="fec off, wanted fec91")),
    (UP | {"rate": "25Gbps", "fec": "fec74"}, LegState(wrong="rate 25Gbps, wanted 100Gbps; fec fec74, wanted fec91")),
    ({"status": "no-link"}, LegState(wrong="has no link, the switch reports no-link")),
    (UP | {"status": "no-link"}, LegState(wrong="has no link, the switch reports no-link")),
    ({"status": "initializing"}, LegState(wrong="has no link, the switch reports initializing")),
    ({"status": "auto-init-failed"}, LegState(wrong="has no link, the switch reports auto-init-failed")),
    ({"status": "\x1b[2Jno\nlink"}, LegState(wrong="has no link, the switch reports \\x1b[2Jno\\nlink")),
    (UP | {"fec": "\x1b[2J"}, LegState(wrong="fec \\x1b[2J, wanted fec91")),
    ({}, LegState(unknown=NOT_LINKED)),
    ({"what": "is this"}, LegState(unknown=NOT_LINKED)),
    ({"status": ""}, LegState(unknown=NOT_LINKED)),
    (UP | {"status": "unknown"}, LegState(unknown=NOT_LINKED)),
    ({"status": "link-ok"}, LegState(unknown=NO_SPEED)),
    (UP | {"rate": ""}, LegState(unknown=NO_SPEED)),
    (UP | {"rate": "soon"}, LegState(unknown=NO_SPEED)),
    ({"status": "link-ok", "rate": "100Gbps"}, LegState(unknown=NO_FEC)),
    (UP | {"fec": ""}, LegState(unknown=NO_FEC)),
]


class Monitor:
    """A switch as its tables, whose monitor says `rows` (by interface; None: no row), or refuses with `trap`."""

    def __init__(self, rack: Rack, switch: Switch, tables: Tables) -> None:
        self.rack, self.switch, self.tables = rack, switch, tables
        self.ids = {row[".id"]: row["name"] for row in tables["/interface/ethernet"]}
        self.rows: dict[str, Row | None] = {}
        self.more: list[Row] = []
        self.trap = ""
        self.asked: list[Sentence] = []

    def ask(self, sentence: Sentence) -> Sequence[Row]:
        self.asked.append(sentence)
        if self.trap:
            raise SentenceError(self.trap)
        path, numbers, *_ = sentence
        assert path == "/interface/ethernet/monitor"
        names = [self.ids[one] for one in numbers.removeprefix("=numbers=").split(",")]
        printed = {name: self.rows.get(name, UP) for name in names}
        return [*({"name": name, **found} for name, found in printed.items() if found is not None), *self.more]

    def faults(self) -> tuple[str, ...]:
        read = reading(self.tables)
        return leg_problems(self.rack, self.switch, read, plan(self.rack, self.switch, read), self.ask)


@pytest.fixture
def made(rack: MakeRack) -> Monitor:
    """As declared: five legs, the fifth of optical fibre."""
    found, switch = rack()
    tables = factory()
    carry_out(tables, plan(found, switch, reading(tables)).changes)
    return Monitor(found, switch, tables)


@pytest.mark.parametrize(("found", "reported"), JUDGED)
def test_one_leg(rack: MakeRack, found: dict[str, str], reported: LegState) -> None:
    _, switch = rack()
    leg = Leg("crs812", "qsfp56-dd-1", 3, (3, 4), 100)
    assert leg_state(leg, fec_of(switch, leg.cage), found) == reported


@pytest.mark.parametrize("fec", ["off", None])
def test_slow_lanes_need_no_fec(rack: MakeRack, fec: str | None) -> None:
    _, switch = rack(cages={"qsfp56-dd-1": {"split": "8x10G"}}, nodes={"spark1": "crs812/qsfp56-dd-1-3"})
    leg = Leg("crs812", "qsfp56-dd-1", 3, (3,), 10)
    reported = {"status": "link-ok", "rate": "10Gbps", **({"fec": fec} if fec else {})}
    assert leg_state(leg, fec_of(switch, leg.cage), reported) == LegState()


@pytest.mark.parametrize(
    ("fec", "reported", "state"),
    [
        ("off", "off", LegState()),
        ("off", "fec91", LegState(wrong="fec fec91, wanted off")),
        ("off", None, LegState(unknown=NO_FEC)),
        ("auto", "fec91", LegState()),
        ("auto", "off", LegState()),
        ("auto", None, LegState()),
        (None, "off", LegState(wrong="fec off, wanted fec91")),
    ],
)
def test_a_leg_with_a_declared_fec(rack: MakeRack, fec: str | None, reported: str | None, state: LegState) -> None:
    cage = {"split": "1x100G", **({"fec": fec} if fec else {})}
    _, switch = rack(cages={"qsfp56-dd-1": cage}, nodes={"spark1": "crs812/qsfp56-dd-1-1"})
    leg = Leg("crs812", "qsfp56-dd-1", 1, (1, 2, 3, 4), 100)
    row = {"status": "link-ok", "rate": "100Gbps", **({"fec": reported} if reported else {})}
    assert leg_state(leg, fec_of(switch, leg.cage), row) == state


def test_a_switch_whose_legs_are_up_is_asked_once(made: Monitor) -> None:
    assert made.faults() == ()
    assert made.asked == [
        (
            "/interface/ethernet/monitor",
            "=numbers=*4,*6,*8,*A,*C",
            "=once=",
            "=.proplist=name,status,rate,fec",
        )
    ]


def test_a_fault_names_both_ends_and_what_to_do(made: Monitor) -> None:
    made.rows[LEG] = {"status": "no-link"}
    made.rows["qsfp56-dd-2-1"] = UP | {"rate": "50Gbps"}
    step = "so look at the cable and its other end (docs/runbooks/switch-verdicts.md)"
    assert made.faults() == (
        (
            "leg crs812/qsfp56-dd-1-3 (cage qsfp56-dd-1, lanes 3-4, to spark2 port 1): has no link, the switch reports "
            f"no-link; set as declared (100G-baseCR2, FEC fec91), {step}"
        ),
        (
            "leg crs812/qsfp56-dd-2-1 (cage qsfp56-dd-2, lanes 1-2, to spark5 port 1): rate 50Gbps, wanted 100Gbps; "
            f"set as declared (100G-baseSR2-LR2, FEC fec91), {step}"
        ),
    )


def test_only_the_leg_s_own_row_counts(made: Monitor) -> None:
    made.more = [{"name": "qsfp56-dd-1-4", "status": "no-link"}, {"name": "sfp56-1", "status": "no-link"}, {}]
    assert made.faults() == ()


def test_an_interface_that_was_renamed(made: Monitor) -> None:
    row(made.tables, LEG)["name"] = made.ids["*6"] = "to-spark2"
    row(made.tables, LEG, "/interface/bridge/port", "interface")["interface"] = "to-spark2"
    row(made.tables, LEG, f"{QOS}/port", "name")["name"] = "to-spark2"
    made.rows["to-spark2"] = {"status": "no-link"}
    (fault,) = made.faults()
    assert fault.startswith("leg crs812/qsfp56-dd-1-3 (cage qsfp56-dd-1, lanes 3-4, to spark2 port 1): has no link")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (LEG, {"disabled": "true"}),
        (LEG, {"auto-negotiation": "true"}),
        (LEG, {"speed": "50G-baseCR"}),
        (LEG, {"fec-mode": "off"}),
        ("qsfp56-dd-1-4", {"disabled": "true"}),  # a companion
        ("qsfp56-dd-1-1", {"speed": "200G-baseCR4"}),  # it takes the lanes of the leg
    ],
)
def test_a_cage_that_is_about_to_change_has_no_faults(made: Monitor, name: str, fields: dict[str, str]) -> None:
    row(made.tables, name).update(fields)
    made.rows[LEG] = made.rows["qsfp56-dd-1-7"] = {"status": "no-link"}
    assert made.faults() == ()
    assert [sentence[1] for sentence in made.asked] == ["=numbers=*C"]
    made.rows["qsfp56-dd-2-1"] = {"status": "no-link"}
    assert len(made.faults()) == 1, "the other cage stays as it is"


@pytest.mark.parametrize("fields", [{"l2mtu": "1584", "mtu": "1500"}, {"tx-flow-control": "on"}])
def test_a_change_that_does_not_decide_the_link(made: Monitor, fields: dict[str, str]) -> None:
    row(made.tables, LEG).update(fields)
    made.rows[LEG] = {"status": "no-link"}
    assert len(made.faults()) == 1


def test_a_switch_from_the_factory_is_not_asked(made: Monitor) -> None:
    made.tables = factory()
    assert (made.faults(), made.asked) == ((), [])


def test_legs_without_a_cable_are_not_asked_for(rack: MakeRack) -> None:
    found, switch = rack(nodes={"spark1": None})
    tables = factory()
    carry_out(tables, plan(found, switch, reading(tables)).changes)
    alone = Monitor(found, switch, tables)
    assert (alone.faults(), alone.asked) == ((), [])


@pytest.mark.parametrize("fault", [None, {}, {"status": "unknown"}])
def test_a_leg_that_is_missing_in_the_answer_is_unknown(made: Monitor, fault: Row | None) -> None:
    made.rows[LEG] = fault
    made.rows["qsfp56-dd-1-5"] = {"status": "link-ok", "fec": "fec91"}
    with pytest.raises(UnreadableError) as raised:
        made.faults()
    assert str(raised.value) == (
        f"/interface/ethernet/monitor: {NOT_LINKED} (crs812/{LEG}); "
        f"/interface/ethernet/monitor: {NO_SPEED} (crs812/qsfp56-dd-1-5)"
    )


def test_two_rows_of_one_leg_are_unknown(made: Monitor) -> None:
    made.more = [{"name": LEG, **UP}]
    with pytest.raises(UnreadableError, match=NOT_LINKED):
        made.faults()


def test_an_empty_answer_is_unknown(made: Monitor) -> None:
    made.rows = dict.fromkeys(made.ids.values())
    with pytest.raises(UnreadableError, match=r"-1-1, crs812/qsfp56-dd-1-3, .*, crs812/qsfp56-dd-2-1"):
        made.faults()


def test_a_refusal_is_handed_on(made: Monitor) -> None:
    made.trap = "not enough permissions (9)"
    with pytest.raises(SentenceError, match="not enough permissions"):
        made.faults()


def test_what_the_documents_show(made: Monitor) -> None:
    made.rows[LEG] = {"status": "no-link"}
    made.rows["qsfp56-dd-1-5"] = UP | {"rate": "50Gbps"}
    generated.check("docs/drift.md", "drift leg", "".join(f"{fault}\n" for fault in made.faults()))


def test_a_leg_that_negotiates_is_reported_without_a_forced_speed(rack: MakeRack) -> None:
    cages = {"qsfp56-dd-1": {"split": "2x200G", "speed": "negotiated"}}
    made, switch = rack({"spark1": "crs812/qsfp56-dd-1-1"}, cages=cages, mtu=1500, l2mtu=1584, identity=None)
    found = reading(factory())
    rows = [{"name": "qsfp56-dd-1-1", "status": "no-link"}]
    (line,) = leg_problems(made, switch, found, plan(made, switch, found), lambda _sentence: rows)
    assert "set as declared (negotiated, FEC auto)" in line
