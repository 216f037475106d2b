"""How nodes are kept - memory, driver, docker, images, logins - as keys of rack.yaml. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from roles.driver import state as driver
from sparkrack.discovery.node import NodeFacts
from sparkrack.discovery.sheet import Gap, Sheet, most
from sparkrack.fleet import Driver
from sparkrack.fleet.errors import dotted, shown
from sparkrack.fleet.scalars import Image
from sparkrack.fleet.section import Section
from sparkrack.fleet.settings import Docker, Memory, Role
from sparkrack.fleet.wording import problems

_IMAGE: TypeAdapter[str] = TypeAdapter(Image)
Nodes = Mapping[str, NodeFacts]


def fill(sheet: Sheet, nodes: Nodes) -> None:
    """Put down what these nodes, which all answered, are kept at. Where they differ it is what most have, and the
    others are told."""
    _memory(sheet, nodes)
    _driver(sheet, nodes)
    _docker(sheet, nodes)
    _images(sheet, nodes)
    _logins(sheet, nodes)
    _leave(sheet)


def _leave(sheet: Sheet) -> None:
    """What would put files of ours on every node, whatever the values: nobody has asked for those yet. The fabric needs
    none where files of others say the same."""
    undeclared = {"driver", "images"} - sheet.data.keys()
    sheet.data["leave"] = [role for role in get_args(Role) if role != "fabric" and role not in undeclared]


def _kept(
    sheet: Sheet, nodes: Nodes, model: type[Section], place: tuple[str, str], of: Callable[[NodeFacts], Any]
) -> None:
    """Put down one value: what most nodes have, or the default when the file cannot say it or no node has any."""
    default = model.model_fields[place[1]].default
    told = {name: value for name, node in nodes.items() if (value := of(node)) is not None}
    value, note = default, "the default: the nodes have none"
    if told:
        common, others = most(told)
        others |= {name: "none" for name in nodes if name not in told}
        sheet.lose(
            Gap(place, f"{name} has {_said(other)}, the file says {_said(common)}") for name, other in others.items()
        )
        try:
            model.model_validate({place[1]: common})
            value, note = common, ""
        except ValidationError:
            sheet.lose([Gap(place, f"is {_said(common)} on the nodes, which the file cannot say")])
            note = "the default: what the nodes have cannot be said here"
    sheet.section(place[0])[place[1]] = value
    if note:
        sheet.note(place, note)


def _said(value: object) -> str:
    return shown(str(value).lower() if isinstance(value, bool) else value)


def _memory(sheet: Sheet, nodes: Nodes) -> None:
    _kept(sheet, nodes, Memory, ("memory", "swap"), lambda node: node.swap)
    _kept(sheet, nodes, Memory, ("memory", "overcommit_memory"), lambda node: node.overcommit)
    _kept(sheet, nodes, Memory, ("memory", "min_free_kbytes"), lambda node: node.min_free)


def _driver(sheet: Sheet, nodes: Nodes) -> None:
    """Declared only when it is what is installed, loaded and held everywhere: declaring it holds it."""
    why = dict(_undeclarable(nodes))
    if not why:
        (first, *_) = nodes.values()
        found = {"version": first.driver, "kernel": first.kernel}
        faults = {name: text for name, node in nodes.items() if (text := _not_as(node, found))}
        if not faults:
            sheet.data["driver"] = found
            sheet.note(("driver",), "installed and held on every node")
            return
        why = faults
    lines = [f"driver: not declared, since {name}: {text}" for name, text in why.items()]
    sheet.heads.setdefault(("memory",), []).extend(lines)
    sheet.lose(
        Gap(("driver",), f"{name}: {text}; left out, so a run leaves driver and kernel alone")
        for name, text in why.items()
    )


def _undeclarable(nodes: Nodes) -> Iterator[tuple[str, str]]:
    for name, node in nodes.items():
        if node.driver is None or node.kernel is None or not node.packages:
            yield name, "driver, kernel or their packages cannot be told"
        elif loose := driver.to_hold(node.packages):
            yield name, f"{len(loose)} packages are not held, like {shown(loose[0])}"


def _not_as(node: NodeFacts, found: Mapping[str, str | None]) -> str | None:
    """Why declaring this would change a node."""
    if (node.driver, node.kernel) != (found["version"], found["kernel"]):
        return f"has driver {node.driver} and kernel {node.kernel}, others {found['version']} and {found['kernel']}"
    try:
        declared = Driver.model_validate(found)
    except ValidationError as error:
        wrong = next(problems(error, Driver, {}))
        return f"driver.{dotted(wrong.path)}: {wrong.what}"
    try:
        words = [*driver.obstacles(node.packages or (), declared), *driver.words(node.packages or (), declared)]
    except ValueError as fault:
        return shown(fault)
    return (
        f"its packages are not those of driver {node.driver} and kernel {node.kernel}: {shown(words[0])}"
        if words
        else None
    )


def _docker(sheet: Sheet, nodes: Nodes) -> None:
    _kept(sheet, nodes, Docker, ("docker", "memory"), lambda node: _gibibytes(node.ceiling))
    _kept(sheet, nodes, Docker, ("docker", "log_size"), lambda node: _option(node, "max-size", str.upper))
    _kept(sheet, nodes, Docker, ("docker", "log_files"), lambda node: _option(node, "max-file", _number))
    # Who does not say it has it off.
    _kept(sheet, nodes, Docker, ("docker", "live_restore"), lambda node: _option(node, "live-restore", str) == "true")


def _option(node: NodeFacts, key: str, of: Callable[[str], Any]) -> Any:
    found = (node.daemon or {}).get(key)
    return None if found is None else of(found)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _gibibytes(text: str | None) -> str | None:
    """A ceiling in bytes as rack.yaml writes it; None for infinity or an odd one."""
    if text is None or not text.isdecimal():
        return None
    mebibytes, rest = divmod(int(text), 1 << 20)
    if rest:
        return None
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


def _images(sheet: Sheet, nodes: Nodes) -> None:
    """Those that all nodes have under the same name and that are the same bytes."""
    held: dict[str, dict[str, str]] = {}
    for name, node in nodes.items():
        for row in node.images.rows if node.images else ():
            if row.repository and row.tag:
                held.setdefault(f"{row.repository}:{row.tag}", {})[name] = row.id
    declared = []
    for image, ids in sorted(held.items()):
        try:
            _IMAGE.validate_python(image)
        except ValidationError:
            sheet.lose([Gap(("images",), f"{shown(image)} is not pinned: its tag may mean other bytes tomorrow")])
            continue
        if len(ids) < len(nodes):
            sheet.lose([Gap(("images",), f"{image} is on {', '.join(ids)} only; declare it to have it everywhere")])
        elif len(set(ids.values())) > 1:
            sheet.lose([Gap(("images",), f"{image} is not the same image on all nodes")])
        else:
            declared.append(image)
    if declared:
        sheet.data["images"] = declared


def _logins(sheet: Sheet, nodes: Nodes) -> None:
    """Hardening closes passwords and root: left off where any way is open today."""
    open_ = [name for name, node in nodes.items() if not _closed(node.sshd or {})]
    if open_:
        sheet.section("access")["hardening"] = False
        why = f"sshd of {', '.join(open_)} lets passwords or root in, or does not tell"
        sheet.note(("access", "hardening"), f"{why}; true closes that")


def _closed(sshd: Mapping[str, str]) -> bool:
    return all(sshd.get(key) == "no" for key in CLOSED)


CLOSED = ("passwordauthentication", "kbdinteractiveauthentication", "permitrootlogin")
"""Ways in that hardening closes, as `sshd -T` prints them."""
