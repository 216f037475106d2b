"""State of one run for all its nodes, and of each image during its distribution."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.state import State

from core.model import Rack, image_lock, lock_file
from core.model.image_lock import Pin
from core.ops.delivery import ChainTransfers
from core.ops.shared_values import SharedValue, facts_of_nodes
from roles.images import desired
from roles.images.facts import ImagesFacts, Survey


@dataclass(kw_only=True)
class ImageTransfers(ChainTransfers):
    """One image during its distribution; a receiver passes on the archive while it comes. `asks_nccl`: the first node
    that gets it asks what it has of NCCL; no node that has it does.
    """

    goal: desired.ImageGoal
    pin: Pin | None
    size: int | None
    asks_nccl: bool


@dataclass(frozen=True)
class ImageSources:
    """The nodes of a run as they were read for one stage of it, and what has become of each image since."""

    survey: Survey
    transfers: dict[str, ImageTransfers]


_surveys: SharedValue[ImageSources] = SharedValue()


def sources_of(state_: State, rack: Rack) -> ImageSources:
    """The fleet of this stage of a run: looked at once, by whichever host comes first.

    Raises ValueError where its nodes contradict one another, ConfigError for a lock file that cannot be used.
    """
    return _surveys.get(state_, lambda: _survey_sources(state_, rack))


def _survey_sources(state_: State, rack: Rack) -> ImageSources:
    views = facts_of_nodes(state_, rack, "images", lambda host, reading: ImagesFacts(host.data.node, reading).whole())
    survey = Survey(rack, image_lock.read(lock_file.lock_path(rack.source)), views)
    return ImageSources(
        survey,
        {
            goal.image.name: ImageTransfers(
                goal=goal,
                pin=goal.pin,
                size=goal.size,
                asks_nccl=(goal.pin is None or goal.pin.nccl is None) and not goal.holders,
                holders=set(survey.givers(goal)),
                expected=set(survey.takers(goal)),
            )
            for goal in survey.goals
        },
    )
