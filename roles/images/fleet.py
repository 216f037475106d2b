"""What one run knows of all its nodes, and of each image while it spreads among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from gevent.lock import Semaphore
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.images import state
from roles.images.spread import Route
from roles.images.view import Survey, View
from sparkrack.fleet import Rack, pins
from sparkrack.fleet.pins import Pin
from sparkrack.ops import probe


@dataclass
class Desk:
    """One image on its way. `sources`: who has it, with how many take it from there; `expected`: who shall take it;
    `begun`: who has begun to; `pulling`: who pulls it from outside; `broken`: why nobody will."""

    goal: state.Goal
    sources: dict[str, int]
    expected: set[str]
    pin: Pin | None
    size: int | None
    begun: set[str] = field(default_factory=set)
    pulling: str | None = None
    broken: str | None = None
    failed: set[Route] = field(default_factory=set)


@dataclass(frozen=True)
class Fleet:
    """The nodes of a run as they were read for one stage of it, and what has become of each image since."""

    survey: Survey
    desks: dict[str, Desk]


_fleets: WeakKeyDictionary[State, dict[bool, Fleet]] = WeakKeyDictionary()
_looking = Semaphore()


def of(state_: State, rack: Rack) -> Fleet:
    """The fleet of this stage of a run: looked at once, by whichever host comes first.

    Raises ValueError where its nodes contradict one another, RackError for a lock file that cannot be used.
    """
    with _looking:
        stages = _fleets.setdefault(state_, {})
        if state_.is_executing not in stages:
            stages[state_.is_executing] = _look(state_, rack)
        return stages[state_.is_executing]


def _look(state_: State, rack: Rack) -> Fleet:
    views = {}
    hosts = {host.data.node.name: host for host in state_.inventory.get_active_hosts() if host.data.get("node")}
    for name in rack.nodes:
        if name in hosts and (view := _view(hosts[name])):
            views[name] = view
    survey = Survey(rack, pins.read(pins.lock_path(rack.source)), views)
    return Fleet(
        survey,
        {
            goal.image.name: Desk(
                goal, dict.fromkeys(survey.givers(goal), 0), set(survey.takers(goal)), goal.pin, goal.size
            )
            for goal in survey.goals
        },
    )


def _view(host: Host) -> View | None:
    """One node; None where it cannot be told: it is refused when its own turn comes."""
    try:
        return View(host.data.node, probe.read(host, "images")).whole()
    except (probe.UnknownError, ValueError):
        return None
