"""docs/verify.md says what the JSON holds, field by field, and how the command ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from core.verify.report import EXITS, Report
from tests import generated

DOCUMENT = "docs/verify.md"


def fields(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, str]]:
    """The path of every field, as `jq` would write it, and what is known of it."""
    for name, field in model.model_fields.items():
        path = f"{place}.{field.alias or name}"
        inner = next((one for one in (field.annotation, *get_args(field.annotation)) if _is_model(one)), None)
        many = inner is not None and inner is not field.annotation
        yield path + ("[]" if many else ""), field.description or ""
        if inner is not None:
            yield from fields(inner, path + ("[]" if many else ""))


def _is_model(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, BaseModel)


def test_every_field_of_the_json_is_reported() -> None:
    reported = list(fields(Report))
    assert len(reported) > 40
    width = max(len(path) for path, _ in reported) + 2
    generated.check(DOCUMENT, "json", "".join(f"{path:<{width}}{about}".rstrip() + "\n" for path, about in reported))


def test_every_exit_code_is_reported() -> None:
    text = (generated.REPOSITORY / DOCUMENT).read_text()
    for verdict, code in EXITS.items():
        assert f"| {code} | {verdict} |" in text
