"""How nodes are kept - memory, driver, docker, images, logins - as keys of rack.yaml. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pydantic import TypeAdapter, ValidationError

from core.model.error_messages import problems
from core.model.errors import format_path, truncate
from core.model.fields import Image, Section
from core.model.role import roles
from roles.driver import desired as driver
from roles.driver.options import DriverOptions
from sparkrack.discovery.draft import Gap, RackDraft, majority
from sparkrack.discovery.node_facts import NodeFacts

_IMAGE: TypeAdapter[str] = TypeAdapter(Image)
Nodes = Mapping[str, NodeFacts]


def fill(sheet: RackDraft, nodes: Nodes) -> None:
    """Write the sections of these nodes, which all answered. Where they differ, the value of most nodes is written, and
    the others are listed."""
    for role in roles():
        if role.options:
            for option in role.adopt:
                _adopt_value(sheet, nodes, role.options, (role.key, option.option))
    _write_driver(sheet, nodes)
    _write_images(sheet, nodes)
    _write_hardening(sheet, nodes)
    _write_unmanaged_roles(sheet)


def _write_unmanaged_roles(sheet: RackDraft) -> None:
    """Write the unmanaged roles: those that would write our files on every node whatever the values, since no run was
    requested yet. The fabric needs none where files of others have the same content."""
    sheet.data["leave"] = [
        role.key
        for role in roles()
        if role.can_be_left and not role.adopts_in_place and role.declared(sheet.data.get(role.key))
    ]


def _adopt_value(sheet: RackDraft, nodes: Nodes, model: type[Section], place: tuple[str, str]) -> None:
    """Write one value: that of most nodes, or the default when the file cannot express it or no node has any."""
    question = ".".join(place)
    default = model.model_fields[place[1]].default
    known = {name: value for name, node in nodes.items() if (value := node.options.get(question)) is not None}
    value, note = default, "the default: the nodes have none"
    if known:
        common, others = majority(known)
        others |= {name: "none" for name in nodes if name not in known}
        sheet.add_gap(
            Gap(place, f"{name} has {_shown_value(other)}, the file has {_shown_value(common)}")
            for name, other in others.items()
        )
        try:
            model.model_validate({place[1]: common})
            value, note = common, ""
        except ValidationError:
            sheet.add_gap([Gap(place, f"is {_shown_value(common)} on the nodes, which the file cannot express")])
            note = "the default: the value of the nodes cannot be expressed here"
    sheet.section(place[0])[place[1]] = value
    if note:
        sheet.note(place, note)


def _shown_value(value: object) -> str:
    return truncate(str(value).lower() if isinstance(value, bool) else value)


def _write_driver(sheet: RackDraft, nodes: Nodes) -> None:
    """Declared only when it is what is installed, loaded and held everywhere: declaring it holds it."""
    why = dict(_list_undeclarable_drivers(nodes))
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
    sheet.add_gap(
        Gap(("driver",), f"{name}: {text}; left out, so a run leaves driver and kernel alone")
        for name, text in why.items()
    )


def common_driver(names: Collection[str], nodes: Nodes) -> tuple[dict[str, str], str]:
    """Return the driver and the kernel that all nodes have, as rack.yaml declares them; or why there are none, since a
    run would install something or hold what was not read. `nodes`: those that were read."""
    if unread := [name for name in names if name not in nodes]:
        return {}, f"could not be read: {', '.join(unread)}"
    found: dict[str, str] = {}
    for name, node in nodes.items():
        if not node.driver or not node.kernel:
            return {}, f"driver or kernel of {name} is unknown"
        found = found or {"version": node.driver, "kernel": node.kernel}
        if why := _not_as(node, found):
            return {}, f"{name}: {why}"
    return found, ""


def _list_undeclarable_drivers(nodes: Nodes) -> Iterator[tuple[str, str]]:
    for name, node in nodes.items():
        if node.driver is None or node.kernel is None or not node.packages:
            yield name, "driver, kernel or their packages are unknown"
        elif loose := driver.to_hold(node.packages):
            yield name, f"{len(loose)} packages are not held, like {truncate(loose[0])}"


def _not_as(node: NodeFacts, found: Mapping[str, str | None]) -> str | None:
    """Why declaring this would change a node."""
    if (node.driver, node.kernel) != (found["version"], found["kernel"]):
        return f"has driver {node.driver} and kernel {node.kernel}, others {found['version']} and {found['kernel']}"
    try:
        declared = DriverOptions.model_validate(found)
    except ValidationError as error:
        wrong = next(problems(error, DriverOptions, {}))
        return f"driver.{format_path(wrong.path)}: {wrong.what}"
    try:
        words = [*driver.blockers(node.packages or (), declared), *driver.apt_arguments(node.packages or (), declared)]
    except ValueError as fault:
        return truncate(fault)
    return (
        f"its packages are not those of driver {node.driver} and kernel {node.kernel}: {truncate(words[0])}"
        if words
        else None
    )


def _write_images(sheet: RackDraft, nodes: Nodes) -> None:
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
            sheet.add_gap([Gap(("images",), f"{truncate(image)} is not pinned: its tag may mean other bytes tomorrow")])
            continue
        if len(ids) < len(nodes):
            sheet.add_gap([Gap(("images",), f"{image} is on {', '.join(ids)} only; declare it to have it everywhere")])
        elif len(set(ids.values())) > 1:
            sheet.add_gap([Gap(("images",), f"{image} is not the same image on all nodes")])
        else:
            declared.append(image)
    if declared:
        sheet.data["images"] = declared


def _write_hardening(sheet: RackDraft, nodes: Nodes) -> None:
    """Hardening closes passwords and root: left off where any way is open today."""
    open_ = [name for name, node in nodes.items() if not _logins_are_closed(node.sshd or {})]
    if open_:
        sheet.section("access")["hardening"] = False
        why = f"sshd of {', '.join(open_)} lets passwords or root in, or is unknown"
        sheet.note(("access", "hardening"), f"{why}; true closes that")


def _logins_are_closed(sshd: Mapping[str, str]) -> bool:
    return all(sshd.get(key) == "no" for key in CLOSED)


CLOSED = ("passwordauthentication", "kbdinteractiveauthentication", "permitrootlogin")
"""Ways in that hardening closes, as `sshd -T` prints them."""
