"""State of one run for all its nodes, and of each model during its distribution."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyinfra.api.state import State

from core.model import Rack, model_lock
from core.model.lock_file import lock_path
from core.ops.delivery import Transfers
from core.ops.shared_survey import SharedSurvey, facts_of_nodes
from roles.models.desired import ModelGoal
from roles.models.facts import ModelsFacts, ModelSurvey


@dataclass
class ModelTransfers(Transfers):
    """One model during its distribution.

    `holders`: nodes that have it. `receiving`: nodes that fetch it now, each with the node that it takes it from, None
    for one that fetches it from outside; a receiver passes on the bytes of a file while they come.
    `started`: those of them whose transfer runs. `listing`: the node that lists its files.
    """

    goal: ModelGoal
    holders: set[str]
    receiving: dict[str, str | None] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    listing: str | None = None

    def leave(self, node: str) -> None:
        """Record that other nodes need not wait for this node any more."""
        super().leave(node)
        self.stop_receiving(node)
        if self.listing == node:
            self.listing = None

    def stop_receiving(self, node: str) -> None:
        """Record that a node fetches it no more."""
        self.receiving.pop(node, None)
        self.started.discard(node)

    def sources_for(self, taker: str) -> dict[str, int]:
        """The nodes that can give it to this one, each with its number of receivers: not those that get it from this
        one, directly or over others.
        """
        givers = self.holders | self.receiving.keys()
        counts = {name: 0 for name in givers if not self._comes_from(name, taker)}
        for source in self.receiving.values():
            if source in counts:
                counts[source] += 1
        return counts

    def _comes_from(self, node: str | None, taker: str) -> bool:
        passed: set[str] = set()
        while node is not None and node not in passed:
            if node == taker:
                return True
            passed.add(node)
            node = None if node in self.holders else self.receiving.get(node)
        return False


@dataclass(frozen=True)
class ModelSources:
    """The nodes of a run as they were read for one stage of it, and what has become of each model since."""

    survey: ModelSurvey
    transfers: dict[str, ModelTransfers]


_surveys: SharedSurvey[ModelSources] = SharedSurvey()


def sources_of(state_: State, rack: Rack) -> ModelSources:
    """The fleet of this stage of a run: looked at once, by whichever host comes first.

    Raises ConfigError for a lock file that cannot be used.
    """
    return _surveys.get(state_, lambda: _read_model_sources(state_, rack))


def _read_model_sources(state_: State, rack: Rack) -> ModelSources:
    views = facts_of_nodes(state_, rack, "models", lambda host, reading: ModelsFacts(host.data.node, reading).whole())
    survey = ModelSurvey(rack, model_lock.read(lock_path(rack.source)), views)
    return ModelSources(
        survey,
        {
            goal.model.name: ModelTransfers(goal, set(survey.holders(goal)), expected=set(survey.takers(goal)))
            for goal in survey.goals
        },
    )
