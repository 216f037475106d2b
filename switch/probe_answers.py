"""Answers of a probe to the questions about a switch that no document answers. Pure.

Each answer comes with its evidence, as the switch printed it; questions that only a write could answer are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.hardware.cage_kinds import cage_kind, cage_of
from core.routeros.menus import BRIDGE, BRIDGE_PORT, ETHERNET, PFC, PROFILE, QOS_PORT, QUEUE, SETTINGS, Row
from switch.cages import SPEED, describe, lanes_of

NOT_ASKED = "needs a write, not asked"

Document = Mapping[str, Any]
Evidence = list[Any]
Answer = tuple[str, Evidence]

_GBPS_AND_LANES = {word: shape for words in SPEED.values() for shape, word in words.items()}


def probe_answers(document: Document) -> list[dict[str, Any]]:
    """One entry for each question: its text, the answer as far as reading gives one, and the evidence."""
    entries = []
    for question, find in QUESTIONS:
        answer, evidence = find(document)
        entries.append({"question": question, "answer": answer, "evidence": evidence})
    return entries


def _port_rows(document: Document) -> dict[str, Row]:
    return {row["default-name"]: row for row in document["menus"].get(ETHERNET.path, ()) if "default-name" in row}


def _cage_names(document: Document) -> list[str]:
    """The cages of the unit by the names of its ports, whatever its model is."""
    return list(dict.fromkeys(cage for name in _port_rows(document) if (cage := cage_of(name))))


def _monitor_row(document: Document, default_name: str) -> Row:
    """Return the monitor's row of a port."""
    name = _port_rows(document).get(default_name, {}).get("name", default_name)
    found: Row = next((row for row in document["monitor"] if row.get("name") == name), {})
    return found


def _is_on(row: Row, name: str) -> bool:
    return row.get(name) in ("true", "yes")


def _lane_answer(document: Document, name: str) -> dict[str, str]:
    """One lane: what is set, and what it does."""
    row, seen = _port_rows(document)[name], _monitor_row(document, name)
    fields = ("default-name", "disabled", "auto-negotiation", "speed", "fec-mode", "running")
    reported = {field: row[field] for field in fields if field in row}
    shown = ("status", "rate", "full-duplex", "fec")
    return reported | {f"monitor {field}": seen[field] for field in shown if field in seen}


# claim: switch.lanes.illegal-pair
def _illegal_pair_answer(document: Document) -> Answer:
    ports = _port_rows(document)
    found = []
    for cage in _cage_names(document):
        legal = {(one.gbps, one.lanes_per_leg): one.first_lanes for one in cage_kind(cage).breakouts.values()}
        for number, name in enumerate(lanes_of(cage), start=1):
            row = ports.get(name, {})
            shape = _GBPS_AND_LANES.get(row.get("speed", ""))
            if shape and not _is_on(row, "auto-negotiation") and number not in legal.get(shape, ()):
                found.append(_lane_answer(document, name))
    if found:
        return "such a pair is set, so it was accepted; the evidence shows what the lane does", found
    return f"no such pair is set; whether one would be refused {NOT_ASKED}", []


def _answer_companion_lanes(document: Document) -> Answer:
    ports = _port_rows(document)
    found = []
    for cage in _cage_names(document):
        lanes = lanes_of(cage)
        if any(name not in ports for name in lanes):
            continue
        words = describe(cage, ports).split()[0]
        split = cage_kind(cage).breakouts.get(words)
        if split and split.lanes_per_leg > 1:
            companions = [lanes[at - 1] for at in split.lanes if at not in split.first_lanes]
            found += [_lane_answer(document, name) for name in companions]
    if not found:
        return "no cage is split into legs of several lanes", []
    statuses = sorted({lane.get("monitor status", "(not printed)") for lane in found})
    rates = sorted({lane.get("monitor rate", "(not printed)") for lane in found})
    running = sorted({lane.get("running", "(not printed)") for lane in found})
    return f"status {', '.join(statuses)}; rate {', '.join(rates)}; running {', '.join(running)}", found


def _forms_answer(document: Document) -> Answer:
    queues = _field_values(document["menus"].get(QOS_PORT.path, ()), "egress-rate-queue")
    sizes = _field_values(document["menus"].get("/interface", ()), "max-l2mtu")
    rates = _field_values(document["monitor"], "rate")
    evidence: Evidence = [{"egress-rate-queueN": queues}, {"max-l2mtu": sizes}, {"monitor rate": rates}]
    return ("as in the evidence" if queues else "no queue has a rate; the rest as in the evidence"), evidence


def _field_values(rows: Sequence[Row], start: str) -> list[str]:
    return sorted({value for row in rows for name, value in row.items() if name.startswith(start)})


def _fec_answer(document: Document) -> Answer:
    legs = [name for name, row in _port_rows(document).items() if row.get("speed", "").startswith("100G-baseCR2")]
    lanes = [_lane_answer(document, name) for name in legs]
    if not lanes:
        return "no leg runs 100G-baseCR2", []
    fecs = sorted({lane.get("monitor fec", "(not printed)") for lane in lanes})
    return f"the switch shows {', '.join(fecs)}; what is on the wire, and what the adapter needs, the node shows", lanes


def _ids_answer(document: Document) -> Answer:
    return "as in the evidence", [{name: row.get(".id", "") for name, row in sorted(_port_rows(document).items())}]


def _members_answer(document: Document) -> Answer:
    bridges = [row.get("name", "") for row in document["menus"].get(BRIDGE.path, ())]
    members: dict[str, list[str]] = {}
    for row in document["menus"].get(BRIDGE_PORT.path, ()):
        members.setdefault(row.get("bridge", ""), []).append(row.get("interface", ""))
    answer = f"now: {', '.join(bridges) or 'no bridge'}; what they were from the factory, only a factory-new unit shows"
    return answer, [members]


def _qos_answer(document: Document) -> Answer:
    paths = [menu.path for menu in (SETTINGS, PROFILE, QUEUE, PFC, QOS_PORT)]
    absent = {path: document["refused"][path] for path in paths if path in document["refused"]}
    lacking = [text for text in document["lacking"] if "/qos/" in text]
    if absent or lacking:
        return f"{document['version']} does not have all of it", [absent, lacking]
    return f"{document['version']} has all that we use of it", [{path: len(document["menus"][path]) for path in paths}]


def _not_asked(_document: Document) -> Answer:
    return NOT_ASKED, []


def _answer_disabled_lanes(document: Document) -> Answer:
    off = [_lane_answer(document, name) for name, row in _port_rows(document).items() if _is_on(row, "disabled")]
    return (f"{NOT_ASKED}; lanes that are disabled now are in the evidence" if off else NOT_ASKED), off


QUESTIONS: tuple[tuple[str, Callable[[Document], Answer]], ...] = (
    ("1 Does set refuse illegal pairs of lane and speed, or take them and stay down?", _illegal_pair_answer),
    ("2 What does monitor print on companion lanes, and is running false there?", _answer_companion_lanes),
    ("3 How are egress-rate-queueN, max-l2mtu and rates read back?", _forms_answer),
    ("4 Is fec91 at 100G-baseCR2 RS(544,514), and does the adapter need 100G_2X forced?", _fec_answer),
    ("5 Which .ids do the ports have?", _ids_answer),
    ("6 Which ports are members of the bridge from the factory?", _members_answer),
    ("7 Do the QoS menus exist as documented in this release?", _qos_answer),
    ("8 Do all ports bounce when l2mtu is written with the value it has?", _not_asked),
    ("9 Does disabling a companion lane break its leg?", _answer_disabled_lanes),
)
