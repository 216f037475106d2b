"""The ceiling of the containers and the settings of their engine: the section `docker` of rack.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from core.model.fields import LogSize, MemorySize, Section


class DockerOptions(Section):
    """The memory ceiling of all containers of a node together, and of each; and how their engine is kept.

    `logs`: where containers log. A json-file log is `log_files` files of `log_size`; the journal has its own limits.
    `live_restore`: containers outlive a restart of the engine.
    `restart`: whether the engine may be restarted while containers run that would die of it, or only when idle.
    """

    memory: MemorySize = Field(default="100G", examples=["100G"])
    logs: Literal["json-file", "journald"] = "json-file"
    log_size: LogSize = Field(default="50M", examples=["50M"])
    log_files: Annotated[StrictInt, Field(ge=1, le=100)] = 5
    live_restore: StrictBool = False
    restart: Literal["idle", "always"] = "idle"
