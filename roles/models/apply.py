"""Bring the models of rack.yaml to a node."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from core.model import ConfigError, Node, Rack
from core.ops import announce, host_facts, refusals
from core.ops.detached_unit import deliver
from core.probes.protocol import UnknownError
from core.util.event import EventKind
from roles.models import ROLE, facts, model_sources
from roles.models.delivery import ModelDelivery
from roles.models.model_sources import ModelSources


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Provide every model that rack.yaml declares, with the same bytes as on every other node. Without any, nothing is
    done.

    Does not protect from a change of a file during the run, and removes none itself.
    """
    if rack.models:
        deliver_models(name="Bring the models", rack=rack, node=node)


@operation()
def deliver_models(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Deliver the missing files of models to a node: from another node, over the fabric where both share one, else from
    the hub or from the operator's machine.

    + rack: the declared models; the lock file is beside its file
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        facts.ModelsFacts(node, host_facts.read(host, "models")).whole()
        known = model_sources.sources_of(host.state, rack)
        survey = known.survey
        obstacles, steps = survey.obstacles(node.name), survey.steps(node.name)
        changes = [] if obstacles else survey.changes(node.name)
    except (UnknownError, ValueError, ConfigError) as unknown:
        yield refusals.fail_unknown(host, unknown)
        return
    for event in survey.unmanaged(node.name):
        announce.announce_warning(host, event, EventKind.UNMANAGED)
    if obstacles:
        yield refusals.refuse(host, *obstacles)
        return
    if not steps:
        host.noop("all models are there, and are what the lock file says")
        return
    host_facts.invalidate(host)
    announce.announce_change(host, changes)
    yield FunctionCommand(_carry_out, (known, node.name, [goal.model.name for goal in steps]), {})


def _carry_out(
    state: State,  # noqa: ARG001 - pyinfra passes both or neither
    host: Host,
    known: ModelSources,
    node: str,
    names: Iterable[str],
) -> bool:
    """Deliver one model after the other; the first failure is the end."""
    delivery = ModelDelivery(host, node, known)

    def deliveries() -> None:
        for name in names:
            delivery.deliver(name)

    def leave() -> None:
        for transfers in known.transfers.values():
            transfers.leave(node)

    return deliver(host, "models", deliveries, leave)
