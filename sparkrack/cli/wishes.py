"""What the user says of a rack that has no file yet: the options that `init` and `adopt` share, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import ValidationError

from sparkrack.fleet import CAGES, SPLITS, SecretRef, cage_kind, rack_path
from sparkrack.fleet.scalars import Address, HostName, Vendor, unfit

VENDORS = get_args(Vendor)
_Command = Callable[..., Any]


@dataclass(frozen=True)
class Wishes:
    """The options, judged one by one. `nodes` and `switch` are addresses by name; `vendors` by node, `cables` by node
    and port, `cages` by name. `password`: where that of the switch's user is kept."""

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
    """There is no switch, and none is to be looked for."""
    cages: Mapping[str, str] = field(default_factory=dict)
    yes: bool = False


_OPTIONS = (
    click.option(
        "--out",
        type=click.Path(path_type=Path, dir_okay=False),
        default=lambda: rack_path(),
        show_default="$RACK or group_data/rack.yaml",
        help="The file to write.",
    ),
    click.option("--name", default="rack", show_default=True, help="What the rack is called."),
    click.option("--node", "nodes", multiple=True, metavar="NAME=ADDRESS", help="A node, by rank; again for the next."),
    click.option("--vendor", "vendors", multiple=True, metavar="[NODE=]VENDOR", help="Who made it, or all of them."),
    click.option(
        "--cable", "cables", multiple=True, metavar="NODE/PORT=END", help="Where a cable ends, if no machine can tell."
    ),
    click.option("--user", help="Whom the nodes let in.  [default: asked, else ops]"),
    click.option("--key", metavar="PATH", help="With which key.  [default: asked, else ~/.ssh/id_ed25519]"),
    click.option("--known-hosts", default="known_hosts", show_default=True, help="From the folder of the file."),
    click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="Of the nodes."),
    click.option(
        "--host-keys",
        type=click.Path(path_type=Path, readable=False, dir_okay=False),
        help="Lines NODE SHA256:... or of a known_hosts file; else fingerprints are shown and confirmed.",
    ),
    click.option(
        "--switch",
        "switch",
        metavar="[NAME=]ADDRESS",
        help="The switch; its name is crs812 otherwise. `-`: there is none.",
    ),
    click.option("--api-port", type=click.IntRange(1, 65535), help="Its API.  [default: 8729, with --plain 8728]"),
    click.option("--plain", is_flag=True, help="The plain API: the password goes in the clear."),
    click.option("--fingerprint", metavar="SHA256", help="Of its certificate; else it is shown and confirmed."),
    click.option("--switch-user", default="sparkrack", show_default=True, help="Who reads it."),
    click.option("--switch-password-env", metavar="VARIABLE", help="Holds that user's password."),
    click.option("--switch-password-file", metavar="PATH", help="Holds it; nobody else may read the file."),
    click.option("--cage", "cages", multiple=True, metavar="CAGE=SPLIT", help="How a cage shall be split."),
    click.option("-y", "--yes", is_flag=True, help="Write over a file that is there, without asking."),
)


def wish_options(command: _Command) -> _Command:
    """All of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def judged(
    *,
    nodes: Sequence[str],
    vendors: Sequence[str],
    cables: Sequence[str],
    switch: str | None,
    fingerprint: str | None,
    switch_password_env: str | None,
    switch_password_file: str | None,
    cages: Sequence[str],
    **rest: Any,
) -> Wishes:
    """The options as they mean. Raises UsageError."""
    alone, switch = switch == "-", None if switch == "-" else switch
    named = dict(_pair(text, "--node", "NAME=ADDRESS") for text in nodes)
    if len(named) < len(nodes):
        raise click.UsageError("--node: two nodes have the same name")
    at = dict([_pair(switch if "=" in switch else f"crs812={switch}", "--switch", "[NAME=]ADDRESS")]) if switch else {}
    for name, address in (*named.items(), *at.items()):
        machine(name, address)
    return Wishes(
        nodes=named,
        vendors=_vendors(vendors, named),
        cables=_cables(cables, named),
        switch=at,
        alone=alone,
        fingerprint=_fingerprint(fingerprint),
        password=_reference(switch_password_env, switch_password_file),
        cages=_cages(cages),
        **rest,
    )


def machine(name: str, address: str) -> None:
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


def _cages(texts: Sequence[str]) -> dict[str, str]:
    found = dict(_pair(text, "--cage", "CAGE=SPLIT") for text in texts)
    for cage, split in found.items():
        if cage not in CAGES:
            raise click.UsageError(f"--cage: a CRS812 has no cage {cage!r}; it has {', '.join(CAGES)}")
        if split not in SPLITS[cage_kind(cage)]:
            raise click.UsageError(f"--cage: {cage} can be {', '.join(SPLITS[cage_kind(cage)])}")
    return found


def _fingerprint(text: str | None) -> str | None:
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise click.UsageError("--fingerprint: write the 64 hex digits of its SHA-256")
    return digits


def _reference(variable: str | None, file: str | None) -> SecretRef | None:
    if variable and file:
        raise click.UsageError("--switch-password-env and --switch-password-file exclude one another")
    given = {"env": variable} if variable else {"file": str(Path(file).absolute())} if file else None
    try:
        return SecretRef.model_validate(given) if given else None
    except ValidationError:
        raise click.UsageError("that is not the name of a variable or file; never write the password itself") from None
