"""Asking nodes and switches how they do, all at the same time and not for long. Nothing is changed on any of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from sparkrack.fleet import Rack
from sparkrack.proof.machines import ssh_config
from sparkrack.proof.shell import RootShell, UnreachableError
from sparkrack.proof.told import UnknownError
from sparkrack.status.question import script
from sparkrack.status.switch import SwitchSaid
from switch.legs import LINKED
from switch.look import Look
from switch.menus import IDENTITY, RESOURCE, Row
from switch.offload import forwarding

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10.0
"""How long a node may take to be reached, and to answer."""
SECONDS = 12.0
"""Who has not answered by then, node or switch, is not waited for."""
HEALTH = ("/system/health/print", "=.proplist=name,value")
"""One row a sensor (MikroTik manual, 'Health'); which there are differs by model."""


@dataclass(frozen=True)
class Silent:
    """A machine that did not answer, and why."""

    why: str


Said = str | SwitchSaid | Silent
"""What comes of asking: a node's output, a switch's rows, or neither."""


def ask(rack: Rack, machines: Collection[str]) -> dict[str, Said]:
    """What each of these machines says: a node the output of its script, a switch its rows."""
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        # What comes first counts: a node that is away shall not hold up the others.
        config.write_text(f"ConnectTimeout {CONNECT_SECONDS}\n{ssh_config(rack)}", errors="surrogateescape")
        works: dict[str, Callable[[], Said]] = {}
        for name in machines:
            works[name] = _node(rack, name, config) if name in rack.nodes else _switch(rack, name)
        return _together(works)


def _together(works: Mapping[str, Callable[[], Said]]) -> dict[str, Said]:
    """All of them at once. Their threads are left alone when time is up, and end with the program."""
    futures: dict[str, Future[Said]] = {name: Future() for name in works}
    for name, work in works.items():
        Thread(target=_keep, args=(work, futures[name]), daemon=True).start()
    wait(futures.values(), timeout=SECONDS)
    late = Silent(f"cannot be reached: no answer within {SECONDS:g} s")
    return {name: future.result() if future.done() else late for name, future in futures.items()}


def _keep(work: Callable[[], Said], future: Future[Said]) -> None:
    try:
        future.set_result(work())
    except BaseException as fault:  # it is raised where the result is asked for
        future.set_exception(fault)


def _node(rack: Rack, name: str, config: Path) -> Callable[[], Said]:
    def work() -> Said:
        shell = RootShell(name, config, ANSWER_SECONDS)
        try:
            done = shell.run(script(rack, name))
            return bytes(done.stdout_bytes).decode(errors="backslashreplace")
        except UnreachableError as gone:
            return Silent(f"cannot be reached: {gone.why}")
        finally:
            shell.close()

    return work


def _switch(rack: Rack, name: str) -> Callable[[], Said]:
    def work() -> Said:
        look = Look(rack, rack.switches[name])
        try:
            resource, identity = (_only(look.ask(menu.sentence())) for menu in (RESOURCE, IDENTITY))
            frames = look.frames()
            links, health, armed = look.links, _health(look), look.armed()
            held = bool(look.safe_mode_holder())
            linked = [name for name, row in links.items() if row.get("status") == LINKED]
            by_whom = forwarding(frames, look.frames(), linked)
            return SwitchSaid(resource, identity, links, health, armed, held, by_whom)
        except UnknownError as fault:
            return Silent(str(fault).removeprefix(f"{name} "))
        finally:
            look.close()

    return work


def _only(rows: tuple[Row, ...]) -> Row:
    return rows[0] if rows else {}


def _health(look: Look) -> tuple[Row, ...] | None:
    try:
        return look.ask(HEALTH)
    except UnknownError:
        return None  # a unit without sensors, or a reader that may not see them: nothing depends on it
