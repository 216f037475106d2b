"""Bring the images of rack.yaml to a node."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from core.model import ConfigError, Node, Rack, image_lock
from core.model.lock_file import lock_path
from core.ops import announce, events, host_facts, refusals
from core.ops.detached_unit import deliver
from core.ops.shell import sudo_script
from core.probes.protocol import UnknownError
from core.util.event import Event, EventKind
from roles.images import ROLE, facts, image_sources, scripts
from roles.images.delivery import ImageDelivery
from roles.images.desired import ImageGoal
from roles.images.facts import ImageStep
from roles.images.image_sources import ImageSources


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Provide every image that rack.yaml declares, with the same bytes as on every other node. Without any, nothing is
    done.

    Does not protect from the removal of an image or a change of a name during the run, and removes none itself.
    """
    if rack.images:
        deliver_images(name="Bring the images", rack=rack, node=node)


@operation()
def deliver_images(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Deliver the missing images of a node: from another node, over the fabric where both share one, else from a
    registry.

    + rack: the declared images; the lock file is beside its file
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        seen = facts.ImagesFacts(node, host_facts.read(host, "images"))
        if not seen.engine and not host.state.is_executing:
            # The docker role starts it before; until then the images are unknown, which does not stop the run here.
            events.opens(host)
            why = "unknown before docker runs"
            announce.announce_change(
                host, (Event(EventKind.CHANGE, subject=image, detail=why) for image in rack.images)
            )
            yield FunctionCommand(_is_unknown, (), {})
            return
        seen.whole()
        known = image_sources.sources_of(host.state, rack)
        survey = known.survey
        obstacles, steps, records = survey.obstacles(node.name), survey.steps(node.name), survey.records(node.name)
        unasked = survey.unasked(node.name)
        changes = [] if obstacles else survey.changes(node.name)
    except (UnknownError, ValueError, ConfigError) as unknown:
        yield refusals.fail_unknown(host, unknown)
        return
    if obstacles:
        yield refusals.refuse(host, *obstacles)
        return
    if not steps and not records and not unasked:
        host.noop("all images are there, and are what the lock file says")
        return
    host_facts.invalidate(host)
    announce.announce_change(host, changes)
    for step in steps:
        if step.there and step.goal.pin:
            yield sudo_script(scripts.name(step.goal.image, step.goal.pin.id))
    missing = [step for step in steps if not step.there]
    if records or unasked or missing:
        yield FunctionCommand(_carry_out, (known, rack, node.name, records, unasked, missing), {})


def _is_unknown(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    """Placeholder in a plan for an unknown delivery. In the run the node is read again."""
    return False


def _carry_out(
    state: State,  # noqa: ARG001 - pyinfra passes both or neither
    host: Host,
    known: ImageSources,
    rack: Rack,
    node: str,
    records: Mapping[str, image_lock.Pin],
    unasked: Iterable[ImageGoal],
    missing: Iterable[ImageStep],
) -> bool:
    """Deliver one image after the other, as determined during the run; the first failure is the end."""
    delivery = ImageDelivery(host, node, known)

    def deliveries() -> None:
        if records:
            image_lock.record(lock_path(rack.source), rack.images, records)
        for goal in unasked:
            delivery.ask_nccl(known.transfers[goal.image.name])
        for step in missing:
            delivery.deliver(step)

    def leave() -> None:
        for transfers in known.transfers.values():
            transfers.leave(node)

    return deliver(host, "images", deliveries, leave)
