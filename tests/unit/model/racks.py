"""Rack files for these tests: the valid ones on disk, and changed copies of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from core.model import ConfigError, Rack, load

CASES = Path(__file__).parents[2] / "cases" / "racks"
VALID = CASES / "valid"
SWITCH = (VALID / "switch.yaml").read_text()
DIRECT = (VALID / "direct.yaml").read_text()
RING = (VALID / "ring.yaml").read_text()
TAGGED = SWITCH.replace("fabric:\n", "fabric:\n  vlans: [1100, 1101]\n")
"""The same switch, with a VLAN for each half."""
KEPT = (VALID / "kept.yaml").read_text()
"""A switch with every key."""

ACCESS = "access: {user: ops, key: ~/.ssh/id_ed25519, known_hosts: known_hosts}\n"


def changed(text: str, *edits: tuple[str, str]) -> str:
    """`text` with each `(old, new)` put in; each old part must occur exactly once."""
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return text


def loaded(text: str) -> Rack:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rack.yaml"
        path.write_text(text, encoding="utf-8", newline="")
        return load(path)


def faults(text: str) -> list[str]:
    """Return every error of `text` as `line: path: what; right`, without the file; [] for a valid rack."""
    try:
        loaded(text)
    except ConfigError as error:
        return [str(fault).removeprefix(fault.file).removeprefix(":") for fault in error.faults]
    return []


def node(name: str, number: int, ports: dict[int, str]) -> str:
    cables = ", ".join(f"{port}: {end}" for port, end in ports.items())
    address = f"10.77.{number // 200}.{number % 200 + 11}"
    return f"  {name}: {{address: {address}, vendor: nvidia, ports: {{{cables}}}}}\n"


def switch(name: str, number: int, cages: dict[str, str]) -> str:
    fingerprint = f"{number:064x}"
    split = ", ".join(f"{cage}: {{split: {split}}}" for cage, split in cages.items())
    return (
        f"  {name}:\n    address: 10.78.0.{number + 1}\n    tls: {{sha256: '{fingerprint}'}}\n"
        f"    user: sparkrack\n    password: {{env: SWITCH_PASSWORD}}\n"
        f"    model: CRS812-8DS-2DQ-2DDQ\n    cages: {{{split}}}\n"
    )


def ring(size: int, ends: list[int], pool: str = "10.100.0.0/20") -> str:
    """Return a ring; `ends[i]`: whether cable i is written at its first node (0), its second (1) or both (2)."""
    ports: list[dict[int, str]] = [{} for _ in range(size)]
    for here, written in enumerate(ends):
        there = (here + 1) % size
        if written != 1:
            ports[here][0] = f"n{there}/1"
        if written != 0:
            ports[there][1] = f"n{here}/0"
    nodes = "".join(node(f"n{number}", number, ports[number]) for number in range(size))
    return f"rack: ring\n{ACCESS}nodes:\n{nodes}fabric: {{pool: {pool}}}\n"


SUBNETS = "fabric: {subnets: [192.168.100.0/24, 192.168.101.0/24]}\n"
JOINED = "fabric: {subnets: [192.168.100.0/24, 192.168.101.0/24], switch_links: by-hand}\n"
"""The same for nodes on several switches."""
