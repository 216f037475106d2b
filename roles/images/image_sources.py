"""State of one run for all its nodes, and of each image during its distribution."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyinfra.api.state import State

from core.model import Rack, image_lock, lock_file
from core.model.image_lock import Pin
from core.ops.distribution import Route
from core.ops.shared_survey import SharedSurvey, facts_of_nodes
from roles.images import desired
from roles.images.facts import ImagesFacts, Survey


@dataclass
class ImageTransfers:
    """One image during its distribution. `sources`: nodes that have it, each with its number of receivers; `expected`:
    nodes that need it; `begun`: nodes that have begun; `pulling`: the node that pulls it from a registry; `broken`: why
    it cannot be delivered.
    """

    goal: desired.ImageGoal
    sources: dict[str, int]
    expected: set[str]
    pin: Pin | None
    size: int | None
    begun: set[str] = field(default_factory=set)
    pulling: str | None = None
    broken: str | None = None
    failed: set[Route] = field(default_factory=set)


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
                goal, dict.fromkeys(survey.givers(goal), 0), set(survey.takers(goal)), goal.pin, goal.size
            )
            for goal in survey.goals
        },
    )
