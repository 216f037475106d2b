"""Every switch model that this program knows, and how a text selects one."""

from __future__ import annotations

from core.hardware.crs804 import CRS804
from core.hardware.crs812 import CRS812
from core.hardware.switch_model import SwitchModel

DEFAULT = CRS812
"""What `switches.<name>.model` means where it is not written."""

MODELS = (CRS812, CRS804)


def find(text: str) -> SwitchModel | None:
    """The model of that name ("crs804"), board ("CRS804-4DDQ") or article ("CRS804-4DDQ-hRM"); None for no model."""
    return next((model for model in MODELS if text.lower() == model.name or model.is_board(text)), None)


def get(text: str) -> SwitchModel:
    """The same for a text that was judged before. Raises LookupError for no model."""
    found = find(text)
    if found is None:
        raise LookupError(f"{text} is not a model that is known; known are {choices()}")
    return found


def choices() -> str:
    """The models in one line, as a message offers them."""
    return ", ".join(f"{model.name} ({model.board})" for model in MODELS)
