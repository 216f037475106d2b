"""Description of a rack without a file, as options give it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from core.hardware import registry
from core.hardware.switch_model import SwitchModel
from core.model import SecretRef
from core.model.fields import Address, HostName, Vendor, unfit

VENDORS = get_args(Vendor)


class OptionError(ValueError):
    """An option that has no meaning. The text names it."""


@dataclass(frozen=True)
class DiscoveryOptions:
    """The options, judged one by one. `nodes` and `switch` are addresses by name; `vendors` by node, `cables` by node
    and port, `cages` by name. `model`: that of a switch that is not read. `password`: where that of the switch's user
    is kept."""

    out: Path
    name: str | None
    nodes: Mapping[str, str]
    vendors: Mapping[str, str]
    cables: Mapping[str, Mapping[int, str]]
    user: str | None
    key: str | None
    known_hosts: str
    ssh_port: int
    host_keys: Path | None
    switch: Mapping[str, str]
    api_port: int | None
    plain: bool
    fingerprint: str | None
    switch_user: str
    password: SecretRef | None
    alone: bool = False
    """Whether there is no switch, and none is to be discovered."""
    cages: Mapping[str, str] = field(default_factory=dict)
    model: SwitchModel = registry.DEFAULT
    yes: bool = False


def parse_options(
    *,
    nodes: Sequence[str],
    vendors: Sequence[str],
    cables: Sequence[str],
    switch: str | None,
    switch_model: str | None,
    fingerprint: str | None,
    switch_password: SecretRef | None,
    cages: Sequence[str],
    **rest: Any,
) -> DiscoveryOptions:
    """The options as they mean. Raises OptionError."""
    alone, switch = switch == "-", None if switch == "-" else switch
    named = dict(_split_pair(text, "--node", "NAME=ADDRESS") for text in nodes)
    if len(named) < len(nodes):
        raise OptionError("--node: two nodes have the same name")
    model = registry.get(switch_model) if switch_model else registry.DEFAULT
    given = switch and (switch if "=" in switch else f"{model.name}={switch}")
    at = dict([_split_pair(given, "--switch", "[NAME=]ADDRESS")]) if given else {}
    for name, address in (*named.items(), *at.items()):
        if why := host_fault(name, address):
            raise OptionError(why)
    return DiscoveryOptions(
        nodes=named,
        vendors=_parse_vendors(vendors, named),
        cables=_parse_cables(cables, named),
        switch=at,
        alone=alone,
        fingerprint=_parse_fingerprint(fingerprint),
        password=switch_password,
        cages=_parse_splits(cages, (model,) if switch_model else registry.MODELS),
        model=model,
        **rest,
    )


def host_fault(name: str, address: str) -> str:
    """Return why these cannot be the name and address of a machine; empty when they can."""
    faults = (unfit(kind, value) for kind, value in ((HostName, name), (Address, address)))
    return next(filter(None, faults), "")


def _split_pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise OptionError(f"{option}: {text!r} is not {form}")
    return name, value


def _parse_vendors(texts: Sequence[str], nodes: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, vendor = text.rpartition("=")
        if vendor not in VENDORS:
            raise OptionError(f"--vendor: {vendor!r} is none of {', '.join(VENDORS)}")
        if sign and name not in nodes:
            raise OptionError(f"--vendor: there is no --node {name}")
        found.update(dict.fromkeys([name] if sign else (node for node in nodes if node not in found), vendor))
    return found


def _parse_cables(texts: Sequence[str], nodes: Mapping[str, str]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for text in texts:
        port, end = _split_pair(text, "--cable", "NODE/PORT=END")
        name, _, number = port.partition("/")
        if name not in nodes or number not in ("0", "1"):
            raise OptionError(f"--cable: {port!r} is not a port of a --node; write {next(iter(nodes), 'spark1')}/1")
        found.setdefault(name, {})[int(number)] = end
    return found


def _parse_splits(texts: Sequence[str], models: Sequence[SwitchModel]) -> dict[str, str]:
    """The splits by cage. Which of `models` the switch is may be known only when it is read, so a cage of any is
    taken here; the file is judged by its own model."""
    found = dict(_split_pair(text, "--cage", "CAGE=SPLIT") for text in texts)
    for cage, split in found.items():
        kind = next((model.cages[cage] for model in models if cage in model.cages), None)
        if kind is None:
            has = (f"a {model.title} has no cage {cage!r}; it has {', '.join(model.cages)}" for model in models)
            raise OptionError(f"--cage: {'; '.join(has)}")
        if split not in kind.breakouts:
            raise OptionError(f"--cage: {cage} can be {', '.join(kind.breakouts)}")
    return found


def _parse_fingerprint(text: str | None) -> str | None:
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise OptionError("--fingerprint: write the 64 hex digits of its SHA-256")
    return digits
