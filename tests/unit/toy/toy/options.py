"""The level of the toy: the section `toy` of rack.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from core.model.fields import Section


class ToyOptions(Section):
    """The number in the toy's file."""

    level: Annotated[StrictInt, Field(ge=1, le=9)] = 3
