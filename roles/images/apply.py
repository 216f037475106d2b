"""Bring the images of rack.yaml to a node."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from roles.images import fleet, scripts, view
from roles.images.courier import Courier
from roles.images.fleet import Fleet
from roles.images.transfer import StoppedError
from roles.images.view import Step
from sparkrack.fleet import Node, Rack, RackError, pins
from sparkrack.ops import account, probe, refusal, report
from sparkrack.ops.shell import root


@deploy("Images")
def apply(rack: Rack, node: Node) -> None:
    """Every image that rack.yaml declares, the same bytes as on every other node. Without any, nothing is done.

    Does not protect from somebody who removes an image or moves a name while it runs, and removes none itself.
    """
    if rack.images:
        bring(name="Bring the images", rack=rack, node=node)


@operation()
def bring(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """What a node lacks: from another node, over the fabric where both share one, else from outside.

    + rack: whose images they are, and beside whose file the lock file lies
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        seen = view.View(node, probe.read(host, "images"))
        if not seen.engine and not host.state.is_executing:
            # The docker role starts it before; what there is cannot be told until then, and is no reason to stop here.
            account.opens(host)
            report.tell(host, [f"{image}: cannot be told before docker runs" for image in rack.images])
            yield FunctionCommand(_unknown, (), {})
            return
        seen.whole()
        known = fleet.of(host.state, rack)
        survey = known.survey
        obstacles, steps, records = survey.obstacles(node.name), survey.steps(node.name), survey.records(node.name)
        lines = [] if obstacles else survey.tell(node.name)
    except (probe.UnknownError, ValueError, RackError) as unknown:
        yield refusal.unknown(host, f"images: {unknown}; nothing was changed")
        return
    if obstacles:
        yield refusal.refuse(host, *(f"images: {obstacle}" for obstacle in obstacles))
        return
    if not steps and not records:
        host.noop("all images are there, and are what the lock file says")
        return
    probe.forget(host)
    report.tell(host, lines)
    for step in steps:
        if step.there and step.goal.pin:
            yield root(scripts.name(step.goal.image, step.goal.pin.id))
    missing = [step for step in steps if not step.there]
    if records or missing:
        yield FunctionCommand(_carry_out, (known, rack, node.name, records, missing), {})


def _unknown(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    """Stands in a plan for what cannot be told yet. When it comes to it, the node is looked at anew."""
    return False


def _carry_out(
    state: State,  # noqa: ARG001 - pyinfra passes both or neither
    host: Host,
    known: Fleet,
    rack: Rack,
    node: str,
    records: Mapping[str, pins.Pin],
    missing: Iterable[Step],
) -> bool:
    """What is known only while it happens: one image after the other, the first that fails is the last."""
    courier = Courier(host, node, known)
    lock = pins.lock_path(rack.source)
    try:
        if records:
            pins.record(lock, rack.images, records)
        for step in missing:
            courier.deliver(step)
    except (StoppedError, RackError) as stopped:
        said = f"{stopped}"
    except (OSError, EOFError, SSHException) as error:
        said = f"{error}; what was on its way goes on without this run, the next one waits for it"
    else:
        return True
    finally:
        for desk in known.desks.values():
            courier.leave(desk)
    host.log_styled(f"images: {said}", fg="red", log_func=logger.error)
    return False
