"""What a node's interfaces shall do about loss. Pure: from rack.yaml and what a node says to files and faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from sparkrack.fleet import Node, Rack, lossless

Policy = Literal["pause", "roce"]
Live = Mapping[str, str | None]
"""What an interface does, setting by setting; None: its driver has no such setting."""

SCRIPT = "/usr/local/lib/sparkrack/lossless"
"""Sets one interface, whose name it is given."""
TEMPLATE = "sparkrack-lossless@.service"
UNIT = f"/etc/systemd/system/{TEMPLATE}"
"""Runs the script for an interface whenever that appears."""

NOTICE, REACT, CNP = (
    f"ecn/roce_np/enable/{lossless.ROCE_CLASS}",
    f"ecn/roce_rp/enable/{lossless.ROCE_CLASS}",
    "ecn/roce_np/cnp_dscp",
)
"""Files below the folder of an interface: tell a sender of congestion, slow down when told, and how it is told
(NVIDIA's driver, DOCA-OFED; the kernel's own mlx5 has no such files)."""
CLASS = "RDMA traffic class"
"""How all RDMA packets are marked, whatever their program wants (same driver: tc/1/traffic_class)."""
PRIORITIES = {lossless.ROCE_DSCP: lossless.ROCE_CLASS, lossless.CNP_DSCP: lossless.CNP_CLASS}
TRAFFIC_CLASS = lossless.ROCE_DSCP << 2 | 2
"""The DSCP with ECN-capable transport in the two bits below it."""

PAUSE: Mapping[str, str] = {"pause rx": "on", "pause tx": "on", "flow control of priorities": "none"}
"""As a ConnectX-7 starts (reported), so this is also what is put back."""
ROCE: Mapping[str, str] = {
    "pause rx": "off",
    "pause tx": "off",
    "flow control of priorities": str(lossless.ROCE_CLASS),
    **{f"priority of DSCP {dscp}": str(priority) for dscp, priority in PRIORITIES.items()},
    NOTICE: "1",
    REACT: "1",
    CNP: str(lossless.CNP_DSCP),
    CLASS: str(TRAFFIC_CLASS),
}
_LEFT_BY_ROCE = [*(f"priority of DSCP {dscp}" for dscp in PRIORITIES), CLASS]
"""What a driver starts without. ECN stays: it is on from the start (reported)."""


def policies(rack: Rack, node: Node) -> dict[str, Policy]:
    """The interfaces of a node that are cabled to a switch with a policy, and that policy."""
    found: dict[str, Policy] = {}
    for port in rack.cabling.ports_of(node.name):
        leg = rack.cabling.leg_of(port)
        policy = rack.switches[leg.switch].lossless if leg else "none"
        if policy != "none":
            found |= {half.interface: policy for half in port.halves}
    return found


def wanted(policy: Policy | None, now: Live) -> dict[str, str]:
    """The settings that an interface shall have; None takes back what this role has set.

    Marks are removed only where they are as this role makes them: others may have marks of their own.
    """
    if policy == "roce":
        return dict(ROCE)
    return {**PAUSE, **{key: "none" for key in _LEFT_BY_ROCE if now[key] == ROCE[key]}}


def faults(name: str, policy: Policy | None, now: Live) -> list[str]:
    """What differs on an interface, each setting in one line; empty when all is right."""
    return [
        f"{name}: {key} {now[key]} -> {value}{_BOUNCES if key == 'flow control of priorities' else ''}"
        for key, value in wanted(policy, now).items()
        if now[key] != value
    ]


_BOUNCES = ", which takes its link down for a moment"
"""The driver does that (Linux, mlx5 en_dcbnl.c), and only when the priorities change."""


def obstacles(name: str, policy: Policy | None, now: Live) -> list[str]:
    """Why an interface cannot have what it shall have."""
    missing = [key for key in wanted(policy, now) if now[key] is None]
    if not missing:
        return []
    return [f"{name}: {policy} needs {', '.join(missing)}, which its driver does not have; NVIDIA's DOCA-OFED has"]


def live(listing: str, name: str) -> Live | None:
    """What an interface does, from lines `interface question exit answer`; None when it is not there.

    Raises ValueError with the reason where that cannot be told.
    """
    answers = {}
    for line in listing.splitlines():
        interface, question, code, answer = [*line.split(" ", 3), "", "", ""][:4]
        if interface == name:
            answers[question] = (code, answer.strip())
    if not answers:
        return None
    pause, priorities, marks = (_said(name, answers, question) for question in ("pause", "pfc", "dscp"))
    return {
        **{f"pause {way.lower()}": _one(name, rf"\b{way}:\s+(on|off)\b", pause) for way in ("RX", "TX")},
        "flow control of priorities": _flow_controlled(name, priorities),
        **{f"priority of DSCP {dscp}": _priority(name, dscp, marks) for dscp in PRIORITIES},
        **{key: _file(name, answers, key) for key in (NOTICE, REACT, CNP)},
        CLASS: _traffic_class(_file(name, answers, "class")),
    }


def _said(name: str, answers: Mapping[str, tuple[str, str]], question: str) -> str:
    tool, package = ("ethtool", "ethtool") if question == "pause" else ("dcb", "iproute2")
    code, answer = answers.get(question, ("silent", ""))
    if code == "127":
        raise ValueError(f"{name}: cannot be asked without {tool} (package {package})")
    if code != "0":
        raise ValueError(f"{name}: {tool} cannot tell its {question}: {answer or f'exit {code}'}")
    return answer


def _file(name: str, answers: Mapping[str, tuple[str, str]], question: str) -> str | None:
    code, answer = answers.get(question, ("silent", ""))
    if code not in ("0", "absent"):
        raise ValueError(f"{name}: {question} cannot be read: {answer or f'exit {code}'}")
    return answer if code == "0" else None


def _one(name: str, pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if not match:
        raise ValueError(f"{name}: cannot be told from {text[:80]!r}")
    return match[1]


def _flow_controlled(name: str, text: str) -> str:
    """The priorities with flow control, "none" or "3" or "3 4", from all eight."""
    found = re.findall(r"\b([0-7]):(on|off)\b", text)
    if "".join(priority for priority, _ in found) != "01234567":
        raise ValueError(f"{name}: flow control of priorities cannot be told from {text[:80]!r}")
    return " ".join(priority for priority, state in found if state == "on") or "none"


def _priority(name: str, dscp: int, text: str) -> str:
    """The priority of a DSCP; nothing is said when the table is empty."""
    if text and not re.fullmatch(r"dscp-prio( +\d+:[0-7])+", text):
        raise ValueError(f"{name}: priorities of DSCPs cannot be told from {text[:80]!r}")
    return " ".join(re.findall(rf" {dscp}:([0-7])", text)) or "none"


def _traffic_class(text: str | None) -> str | None:
    """Empty: each program marks its own packets. There may be more lines, for single peers."""
    if text is None:
        return None
    match = re.match(r"Global tclass=(\d+)", text)
    return match[1] if match else "none"
