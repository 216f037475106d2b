"""Desired flow control of a node's interfaces. Pure: from rack.yaml and the facts of a node to files and problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from core.model import Node, Rack, lossless_classes
from core.util.event import Event, field_change

Policy = Literal["pause", "roce"]
Live = Mapping[str, str | None]
"""Live settings of an interface; None: its driver has no such setting."""

SCRIPT = "/usr/local/lib/sparkrack/lossless"
"""Sets one interface, whose name it is given."""
TEMPLATE = "sparkrack-lossless@.service"
UNIT = f"/etc/systemd/system/{TEMPLATE}"
"""Runs the script for an interface whenever that appears."""

# claim: lossless.driver-files
NOTICE, REACT, CNP = (
    f"ecn/roce_np/enable/{lossless_classes.ROCE_CLASS}",
    f"ecn/roce_rp/enable/{lossless_classes.ROCE_CLASS}",
    "ecn/roce_np/cnp_dscp",
)
"""Files below the folder of an interface: notify a sender of congestion, react to a notification, and its DSCP
(NVIDIA's driver, DOCA-OFED; the kernel's own mlx5 has no such files).
"""
CLASS = "RDMA traffic class"
"""Mark of all RDMA packets, regardless of the program's choice (same driver: tc/1/traffic_class)."""
PRIORITIES = {
    lossless_classes.ROCE_DSCP: lossless_classes.ROCE_CLASS,
    lossless_classes.CNP_DSCP: lossless_classes.CNP_CLASS,
}

# claim: lossless.defaults
PAUSE: Mapping[str, str] = {"pause rx": "on", "pause tx": "on", "flow control of priorities": "none"}
"""Initial state of a ConnectX-7 (reported), so also the state that is restored."""
ROCE: Mapping[str, str] = {
    "pause rx": "off",
    "pause tx": "off",
    "flow control of priorities": str(lossless_classes.ROCE_CLASS),
    **{f"priority of DSCP {dscp}": str(priority) for dscp, priority in PRIORITIES.items()},
    NOTICE: "1",
    REACT: "1",
    CNP: str(lossless_classes.CNP_DSCP),
    CLASS: str(lossless_classes.ROCE_TRAFFIC_CLASS),
}
_LEFT_BY_ROCE = [*(f"priority of DSCP {dscp}" for dscp in PRIORITIES), CLASS]
"""Settings that a driver does not have initially. ECN stays: it is on from the start (reported)."""


# claim: lossless.both-halves, lossless.no-stalls
def policies(rack: Rack, node: Node) -> dict[str, Policy]:
    """The interfaces of a node that are cabled to a switch with a policy for its nodes, and that policy."""
    found: dict[str, Policy] = {}
    for port in rack.cabling.ports_of(node.name):
        leg = rack.cabling.leg_of(port)
        policy = rack.switches[leg.switch].lossless if leg else "none"
        if policy in ("pause", "roce"):
            found |= {half.interface: policy for half in port.halves}
    return found


def left_alone(rack: Rack, node: Node) -> bool:
    """Whether a switch of the node is declared to be left as it is; then so is the node."""
    legs = map(rack.cabling.leg_of, rack.cabling.ports_of(node.name))
    return any(leg is not None and rack.switches[leg.switch].lossless == "leave" for leg in legs)


def wanted(policy: Policy | None, now: Live) -> dict[str, str]:
    """Return the desired settings of an interface; None reverts the settings of this role.

    Marks are removed only where they have the values of this role: other programs may set other marks.
    """
    if policy == "roce":
        return dict(ROCE)
    return {**PAUSE, **{key: "none" for key in _LEFT_BY_ROCE if now[key] == ROCE[key]}}


def problems(name: str, policy: Policy | None, now: Live) -> list[Event]:
    """What differs on an interface, one event a setting; empty when all is right."""
    return [
        field_change(name, key, now[key], value, _BOUNCES if key == "flow control of priorities" else None)
        for key, value in wanted(policy, now).items()
        if now[key] != value
    ]


# claim: lossless.pfc-link-down
_BOUNCES = "takes its link down for a moment"
"""The driver does that (Linux, mlx5 en_dcbnl.c), and only when the priorities change."""


def blockers(name: str, policy: Policy | None, now: Live) -> list[str]:
    """Return why an interface cannot get its desired settings."""
    missing = [key for key in wanted(policy, now) if now[key] is None]
    if not missing:
        return []
    return [f"{name}: {policy} needs {', '.join(missing)}, which its driver does not have; NVIDIA's DOCA-OFED has"]


def live(listing: str, name: str) -> Live | None:
    """Parse the settings of an interface, from lines `interface question exit answer`; None when it does not exist.

    Raises ValueError with the reason for an unknown setting.
    """
    answers = {}
    for line in listing.splitlines():
        interface, question, code, answer = [*line.split(" ", 3), "", "", ""][:4]
        if interface == name:
            answers[question] = (code, answer.strip())
    if not answers:
        return None
    pause, priorities, marks = (_tool_answer(name, answers, question) for question in ("pause", "pfc", "dscp"))
    return {
        **{f"pause {way.lower()}": _first_match(name, rf"\b{way}:\s+(on|off)\b", pause) for way in ("RX", "TX")},
        "flow control of priorities": _flow_controlled(name, priorities),
        **{f"priority of DSCP {dscp}": _parse_priority(name, dscp, marks) for dscp in PRIORITIES},
        **{key: _file_answer(name, answers, key) for key in (NOTICE, REACT, CNP)},
        CLASS: _traffic_class(_file_answer(name, answers, "class")),
    }


def _tool_answer(name: str, answers: Mapping[str, tuple[str, str]], question: str) -> str:
    tool, package = ("ethtool", "ethtool") if question == "pause" else ("dcb", "iproute2")
    code, answer = answers.get(question, ("silent", ""))
    if code == "127":
        raise ValueError(f"{name}: cannot be asked without {tool} (package {package})")
    if code != "0":
        raise ValueError(f"{name}: {tool} cannot tell its {question}: {answer or f'exit {code}'}")
    return answer


def _file_answer(name: str, answers: Mapping[str, tuple[str, str]], question: str) -> str | None:
    code, answer = answers.get(question, ("silent", ""))
    if code not in ("0", "absent"):
        raise ValueError(f"{name}: {question} cannot be read: {answer or f'exit {code}'}")
    return answer if code == "0" else None


def _first_match(name: str, pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if not match:
        raise ValueError(f"{name}: unexpected probe output {text[:80]!r}")
    return match[1]


def _flow_controlled(name: str, text: str) -> str:
    """The priorities with flow control, "none" or "3" or "3 4", from all eight."""
    found = re.findall(r"\b([0-7]):(on|off)\b", text)
    if "".join(priority for priority, _ in found) != "01234567":
        raise ValueError(f"{name}: flow control of priorities is unknown: unexpected output {text[:80]!r}")
    return " ".join(priority for priority, state in found if state == "on") or "none"


def _parse_priority(name: str, dscp: int, text: str) -> str:
    """Return the priority of a DSCP; an empty table has no entry."""
    if text and not re.fullmatch(r"dscp-prio( +\d+:[0-7])+", text):
        raise ValueError(f"{name}: priorities of DSCPs are unknown: unexpected output {text[:80]!r}")
    return " ".join(re.findall(rf" {dscp}:([0-7])", text)) or "none"


def _traffic_class(text: str | None) -> str | None:
    """Empty: each program marks its own packets. There may be more lines, for single peers."""
    if text is None:
        return None
    match = re.match(r"Global tclass=(\d+)", text)
    return match[1] if match else "none"
