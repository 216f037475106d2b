"""Immutable records that are printed or kept as JSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Record(BaseModel):
    """An immutable record without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _replace_surrogates(text: Any) -> Any:
    """Replace lone surrogates in a text: output of a machine or a file system may not be text, and a JSON string with a
    surrogate is rejected by many readers, pydantic's among them.
    """
    if not isinstance(text, str) or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Text = Annotated[str, BeforeValidator(_replace_surrogates)]
"""Text from an external source, made valid for JSON."""
