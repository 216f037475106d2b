"""State of one run for all its nodes, and of each image during its distribution."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.state import State

from core.model import Rack, image_lock, lock_file
from core.model.image_lock import Pin
from core.ops.delivery import Transfers
from core.ops.shared_survey import SharedSurvey, facts_of_nodes
from roles.images import desired
from roles.images.facts import ImagesFacts, Survey


@dataclass
class ImageTransfers(Transfers):
    """One image during its distribution. `sources`: nodes that have it, each with its number of receivers."""

    goal: desired.ImageGoal
    sources: dict[str, int]
    pin: Pin | None
    size: int | None

    def sources_for(self, taker: str) -> dict[str, int]:  # noqa: ARG002 - an image is given as a whole, to any node
        """Return the nodes that have it, each with its number of receivers."""
        return self.sources


@dataclass(frozen=True)
class ImageSources:
    """The nodes of a run as they were read for one stage of it, and what has become of each image since."""

    survey: Survey
    transfers: dict[str, ImageTransfers]


_surveys: SharedSurvey[ImageSources] = SharedSurvey()


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
                goal, dict.fromkeys(survey.givers(goal), 0), goal.pin, goal.size, expected=set(survey.takers(goal))
            )
            for goal in survey.goals
        },
    )
