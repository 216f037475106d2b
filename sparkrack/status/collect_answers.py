"""Asking nodes and switches how they do, all at the same time and not for long. Nothing is changed on any of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread

from core.model import Rack
from core.probes.protocol import UnknownError
from core.routeros.menus import DEVICE_MODE, IDENTITY, RESOURCE, Row
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.progress import NO_PROGRESS, ProgressObserver
from sparkrack.status.probe_script import script
from sparkrack.status.switch import SwitchAnswers
from switch.leg_health import LINKED
from switch.offload import forwarding
from switch.verify_client import SwitchChecks

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10.0
"""Seconds for a node to be reached, and to answer."""
ALL_ANSWERS_SECONDS = 12.0
"""Seconds after which a missing answer, of a node or switch, is not waited for."""
HEALTH = ("/system/health/print", "=.proplist=name,value")
"""One row a sensor (MikroTik manual, 'Health'); which there are differs by model."""


@dataclass(frozen=True)
class NoAnswer:
    """A machine that did not answer, and why."""

    why: str


Answer = str | SwitchAnswers | NoAnswer
"""Answer of a host: a node's output, a switch's rows, or neither."""


def collect_answers(
    rack: Rack, machines: Collection[str], progress: ProgressObserver = NO_PROGRESS
) -> dict[str, Answer]:
    """Return the answer of each of these hosts: of a node the output of its script, of a switch its rows."""
    progress.phase("read the state", machines)
    works = {name: _node_work(rack, name) if name in rack.nodes else _switch_work(rack, name) for name in machines}
    return _collect_in_parallel(works, progress)


def _collect_in_parallel(works: Mapping[str, Callable[[], Answer]], progress: ProgressObserver) -> dict[str, Answer]:
    """All of them at once. Their threads are left alone when time is up, and end with the program."""
    futures: dict[str, Future[Answer]] = {name: Future() for name in works}
    for name, work in works.items():
        Thread(target=_keep_answer, args=(name, work, futures[name], progress), daemon=True).start()
    wait(futures.values(), timeout=ALL_ANSWERS_SECONDS)
    late = NoAnswer(f"cannot be reached: no answer within {ALL_ANSWERS_SECONDS:g} s")
    return {name: future.result() if future.done() else late for name, future in futures.items()}


def _keep_answer(name: str, work: Callable[[], Answer], future: Future[Answer], progress: ProgressObserver) -> None:
    try:
        answer = work()
        progress.finish(name, "no answer" if isinstance(answer, NoAnswer) else "answered")
        future.set_result(answer)
    except BaseException as fault:  # it is raised where the result is asked for
        future.set_exception(fault)


def _node_work(rack: Rack, name: str) -> Callable[[], Answer]:
    def work() -> Answer:
        # Opened and closed in the node's own thread: an absent node must not delay the others.
        with open_shells(rack, [name], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
            try:
                done = shells[name].run(script(rack, name))
                return bytes(done.stdout_bytes).decode(errors="backslashreplace")
            except UnreachableError as gone:
                return NoAnswer(f"cannot be reached: {gone.why}")

    return work


def _switch_work(rack: Rack, name: str) -> Callable[[], Answer]:
    def work() -> Answer:
        look = SwitchChecks(rack, rack.switches[name])
        try:
            resource, identity = (_first_row(look.ask(menu.sentence())) for menu in (RESOURCE, IDENTITY))
            frames = look.frames()
            links, health, armed = look.links, _health_rows(look), look.armed()
            held, mode = bool(look.safe_mode_holder()), _device_mode(look)
            linked = [name for name, row in links.items() if row.get("status") == LINKED]
            by_whom = forwarding(frames, look.frames(), linked)
            return SwitchAnswers(resource, identity, links, health, armed, held, by_whom, mode)
        except UnknownError as fault:
            return NoAnswer(fault.reason)
        finally:
            look.close()

    return work


def _first_row(rows: tuple[Row, ...]) -> Row:
    return rows[0] if rows else {}


def _health_rows(look: SwitchChecks) -> tuple[Row, ...] | None:
    try:
        return look.ask(HEALTH)
    except UnknownError:
        return None  # a unit without sensors, or a reader that may not see them: nothing depends on it


def _device_mode(look: SwitchChecks) -> tuple[Row, ...] | None:
    try:
        return look.ask(DEVICE_MODE.sentence())
    except UnknownError:
        if look.lost:
            raise
        return None
