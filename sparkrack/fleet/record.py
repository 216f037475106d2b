"""What is printed or kept as JSON: records that do not change."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Record(BaseModel):
    """It does not change once it is made, and knows no other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _whole(text: Any) -> Any:
    """A text without halves of characters: what a machine or a file system says may be no text, and a JSON string
    that holds one is refused by many readers, pydantic's among them."""
    if not isinstance(text, str) or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Text = Annotated[str, BeforeValidator(_whole)]
"""What somebody else has worded: whatever it holds, JSON can hold it."""
