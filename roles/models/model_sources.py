"""State of one run for all its nodes, and of each model during its distribution."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.state import State

from core.model import Rack, model_lock
from core.model.lock_file import lock_path
from core.ops.delivery import ChainTransfers
from core.ops.shared_values import SharedValue, facts_of_nodes
from roles.models.desired import ModelGoal
from roles.models.facts import ModelsFacts, ModelSurvey


@dataclass(kw_only=True)
class ModelTransfers(ChainTransfers):
    """One model during its distribution; a receiver passes on the bytes of a file while they come. `listing`: the node
    that lists its files.
    """

    goal: ModelGoal
    listing: str | None = None

    def leave(self, node: str) -> None:
        """Record that other nodes need not wait for this node any more."""
        super().leave(node)
        if self.listing == node:
            self.listing = None


@dataclass(frozen=True)
class ModelSources:
    """The nodes of a run as they were read for one stage of it, and what has become of each model since."""

    survey: ModelSurvey
    transfers: dict[str, ModelTransfers]


_surveys: SharedValue[ModelSources] = SharedValue()


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
            goal.model.name: ModelTransfers(
                goal=goal, holders=set(survey.holders(goal)), expected=set(survey.takers(goal))
            )
            for goal in survey.goals
        },
    )
