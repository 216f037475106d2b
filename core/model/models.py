"""The models of a rack file: weights that every node keeps in a folder."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, StrictStr, model_validator

from core.model.fields import FilePath, Name, NonEmptyList, NotEmpty, Section, invalid, matching
from core.model.secrets import SecretRef

MODEL_STORE = PurePosixPath("/srv/models")
"""Folder of a node that holds a folder for each model of rack.yaml, called by the model's name."""

HubName = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}",
        "is not the name of a model on the hub",
        "write its owner and its name, like Qwen/Qwen3-235B-A22B-GPTQ-Int4",
    ),
]
Revision = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}",
        "is not a revision",
        "write the hash of a commit (40 hexadecimal digits), a tag or a branch",
    ),
]


FilePattern = Annotated[
    StrictStr,
    matching(
        r"(?!/)(?!(.*/)?\.\.?(/|$))[^\\\x00-\x1f\x7f]{1,200}",
        "is not the pattern of files in the folder of a model",
        'write it as the hub\'s client reads it, like "*.json" or "model-*.safetensors"',
    ),
]


class Model(Section):
    """A model by its source: a name on the hub, or a folder of the operator's machine.

    `revision`: what is fetched first; rack.lock.json then keeps the commit. `token`: for a hub that asks for a licence.
    `files`: patterns of the files that each node has; without them all but pictures and weights in further formats.
    """

    name: Name
    source: Annotated[HubName | None, NotEmpty] = Field(default=None, examples=["Qwen/Qwen3-235B-A22B-GPTQ-Int4"])
    revision: Revision = "main"
    path: Annotated[FilePath | None, NotEmpty] = Field(default=None, examples=["/data/models/qwen3-235b"])
    token: Annotated[SecretRef | None, NotEmpty] = Field(default=None, examples=["{file: hub.token}"])
    files: Annotated[Annotated[tuple[FilePattern, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=['["*.json", "model-*.safetensors"]']
    )

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        if (self.source is None) == (self.path is None):
            raise invalid(
                "has neither source nor path" if self.path is None else "has both source and path",
                "write one: source for a name on the hub, path for a folder of this machine",
            )
        if self.path is not None and self.token is not None:
            raise invalid("has a token, and a folder needs none", "remove the token")
        return self

    @property
    def folder(self) -> PurePosixPath:
        """Folder of the model on every node."""
        return MODEL_STORE / self.name
