"""Options of `init` and `adopt`, which describe a rack without a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import click

from core.hardware import registry
from core.hardware.switch_model import SwitchModel
from core.model import SecretRef
from core.model.fields import PLAIN_API_PORT, SSH_PORT, TLS_API_PORT, Address, HostName, Vendor, unfit
from core.model.loader import new_path
from sparkrack.cli.options import password_options

VENDORS = get_args(Vendor)
_Command = Callable[..., Any]


@dataclass(frozen=True)
class DiscoveryOptions:
    """The options, judged one by one. `nodes` and `switch` are addresses by name; `vendors` by node, `cables` by node
    and port, `cages` by name. `model`: that of a switch that is not read. `password`: where that of the switch's user
    is kept."""

    out: Path
    name: str
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


_OPTIONS = (
    click.option(
        "--out",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=lambda _ctx, _param, named: named or new_path(),
        show_default="$RACK, else rack.yaml",
        help="The file to write.",
    ),
    click.option("--name", default="rack", show_default=True, help="What the rack is called."),
    click.option("--node", "nodes", multiple=True, metavar="NAME=ADDRESS", help="A node, by rank; again for the next."),
    click.option(
        "--vendor", "vendors", multiple=True, metavar="[NODE=]VENDOR", help="Manufacturer of the node, or of all nodes."
    ),
    click.option(
        "--cable",
        "cables",
        multiple=True,
        metavar="NODE/PORT=END",
        help="Where a cable ends, if no machine can report it.",
    ),
    click.option("--user", help="Login user of the nodes.  [default: asked, else ops]"),
    click.option("--key", metavar="PATH", help="Private key for that login.  [default: asked, else ~/.ssh/id_ed25519]"),
    click.option("--known-hosts", default="known_hosts", show_default=True, help="From the folder of the file."),
    click.option(
        "--ssh-port", type=click.IntRange(1, 65535), default=SSH_PORT, show_default=True, help="Of the nodes."
    ),
    click.option(
        "--host-keys",
        type=click.Path(path_type=Path, readable=False, dir_okay=False),
        help="Lines NODE SHA256:... or of a known_hosts file; else fingerprints are shown and confirmed.",
    ),
    click.option(
        "--switch",
        "switch",
        metavar="[NAME=]ADDRESS",
        help="The switch; its name is that of --switch-model otherwise. `-`: there is none.",
    ),
    click.option(
        "--switch-model",
        type=click.Choice([model.name for model in registry.MODELS]),
        help=f"Its model, if it is not read.  [default: {registry.DEFAULT.name}]",
    ),
    click.option(
        "--api-port",
        type=click.IntRange(1, 65535),
        help=f"Its API.  [default: {TLS_API_PORT}, with --plain {PLAIN_API_PORT}]",
    ),
    click.option("--plain", is_flag=True, help="The plain API: the password goes in the clear."),
    click.option("--fingerprint", metavar="SHA256", help="Of its certificate; else it is shown and confirmed."),
    click.option("--switch-user", default="sparkrack", show_default=True, help="API user that reads it."),
    password_options("switch-", "that user's"),
    click.option("--cage", "cages", multiple=True, metavar="CAGE=SPLIT", help="How a cage shall be split."),
    click.option("-y", "--yes", is_flag=True, help="Write over a file that is there, without asking."),
)


def discovery_options(command: _Command) -> _Command:
    """Add every discovery option to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


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
    """The options as they mean. Raises UsageError."""
    alone, switch = switch == "-", None if switch == "-" else switch
    named = dict(_pair(text, "--node", "NAME=ADDRESS") for text in nodes)
    if len(named) < len(nodes):
        raise click.UsageError("--node: two nodes have the same name")
    model = registry.get(switch_model) if switch_model else registry.DEFAULT
    given = switch and (switch if "=" in switch else f"{model.name}={switch}")
    at = dict([_pair(given, "--switch", "[NAME=]ADDRESS")]) if given else {}
    for name, address in (*named.items(), *at.items()):
        validate_host(name, address)
    return DiscoveryOptions(
        nodes=named,
        vendors=_vendors(vendors, named),
        cables=_cables(cables, named),
        switch=at,
        alone=alone,
        fingerprint=_fingerprint(fingerprint),
        password=switch_password,
        cages=_cages(cages, (model,) if switch_model else registry.MODELS),
        model=model,
        **rest,
    )


def validate_host(name: str, address: str) -> None:
    """Raises UsageError when these cannot be the name and address of a machine."""
    for kind, value in ((HostName, name), (Address, address)):
        if why := unfit(kind, value):
            raise click.UsageError(why)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise click.UsageError(f"{option}: {text!r} is not {form}")
    return name, value


def _vendors(texts: Sequence[str], nodes: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, vendor = text.rpartition("=")
        if vendor not in VENDORS:
            raise click.UsageError(f"--vendor: {vendor!r} is none of {', '.join(VENDORS)}")
        if sign and name not in nodes:
            raise click.UsageError(f"--vendor: there is no --node {name}")
        found.update(dict.fromkeys([name] if sign else (node for node in nodes if node not in found), vendor))
    return found


def _cables(texts: Sequence[str], nodes: Mapping[str, str]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for text in texts:
        port, end = _pair(text, "--cable", "NODE/PORT=END")
        name, _, number = port.partition("/")
        if name not in nodes or number not in ("0", "1"):
            raise click.UsageError(f"--cable: {port!r} is no port of a --node; write {next(iter(nodes), 'spark1')}/1")
        found.setdefault(name, {})[int(number)] = end
    return found


def _cages(texts: Sequence[str], models: Sequence[SwitchModel]) -> dict[str, str]:
    """The splits by cage. Which of `models` the switch is may be known only when it is read, so a cage of any is
    taken here; the file is judged by its own model."""
    found = dict(_pair(text, "--cage", "CAGE=SPLIT") for text in texts)
    for cage, split in found.items():
        kind = next((model.cages[cage] for model in models if cage in model.cages), None)
        if kind is None:
            has = (f"a {model.title} has no cage {cage!r}; it has {', '.join(model.cages)}" for model in models)
            raise click.UsageError(f"--cage: {'; '.join(has)}")
        if split not in kind.breakouts:
            raise click.UsageError(f"--cage: {cage} can be {', '.join(kind.breakouts)}")
    return found


def _fingerprint(text: str | None) -> str | None:
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise click.UsageError("--fingerprint: write the 64 hex digits of its SHA-256")
    return digits
