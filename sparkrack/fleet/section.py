"""What every section of a rack file has in common, and the bounds that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt

from sparkrack.fleet.frozen import FrozenMap

Key = TypeVar("Key")
Value = TypeVar("Value")
Frozen = Annotated[Mapping[Key, Value], AfterValidator(FrozenMap)]

MAX_L2MTU = 9570
"""The largest l2mtu of a QSFP56 or QSFP56-DD interface, in bytes (MikroTik manual, "MTU in RouterOS")."""

Mtu = Annotated[StrictInt, Field(ge=1280, le=MAX_L2MTU, examples=[9000])]
TcpPort = Annotated[StrictInt, Field(ge=1, le=65535)]


class Section(BaseModel):
    """A section of the file: no unknown keys, no change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def to_json(self) -> dict[str, object]:
        """As plain data: pyinfra asks for this when it shows host data."""
        return self.model_dump(mode="json")
