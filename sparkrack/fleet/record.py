"""What is printed or kept as JSON: records that do not change."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """It does not change once it is made, and knows no other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
