"""Serving: the units of rack.yaml are installed on their nodes, and are up or down as declared.

Each node of a unit has its files, an agent and the service of its rank; the first one has the coordinator besides
(decision 0021). Coordinator and agents share a secret that a run makes. A unit that runs is never disturbed: what
differs is refused with the command that stops the unit first. `state` is handed to the coordinator, which
starts all ranks or none; the run does not wait for that. A unit that its coordinator holds is reported, and not
started.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.model.cabling import Cabling
from core.model.errors import RuleViolation
from core.model.partial_rack import PartialRack
from core.model.role import Role
from serving import calibration, gateway_rules, rules
from serving.options import ServingOptions


def _check_serving_and_gateway(
    partial: PartialRack, serving: ServingOptions, cabling: Cabling
) -> Iterator[RuleViolation]:
    yield from rules.check(partial, serving, cabling)
    if serving.gateway:
        yield from gateway_rules.check(partial, serving, serving.gateway, cabling)


ROLE = Role(
    __name__,
    title="Serving",
    promise=(
        "the declared units of inference engines: installed on their nodes, all ranks up or none; a run does not "
        "disturb a unit that runs"
    ),
    proof=(
        "`sha256sum` of each file, `systemctl`, the container's control group, a completion of each unit, bytes of its "
        "RDMA devices"
    ),
    options=ServingOptions,
    opt_in=True,
    rules=_check_serving_and_gateway,
    rules_need_sound_file=False,
    read_lock=calibration.read,
    named=("units",),
    spreads=True,
    alone=False,
)
