"""Translation of pydantic's errors into messages: what is wrong at which path, and what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from core.model.errors import NAMED, Path, RuleViolation, holds_secret, truncate
from core.model.fields import REFUSED


def problems(error: ValidationError, root: type[BaseModel], spelling: Mapping[Path, str]) -> Iterator[RuleViolation]:
    """Yield one problem for each error; `spelling` has the text of unquoted values in the file."""
    found = [(detail, _path_in_file(detail["loc"], root)) for detail in error.errors(include_url=False)]
    misspelled = {
        (*path[:-1], near)
        for detail, path in found
        if detail["type"] == "extra_forbidden"
        and (near := _near_key(path, _find_declaration(root, path, key=False)[0]))
    }
    for detail, path in found:
        if detail["type"] != "missing" or path not in misspelled:
            yield RuleViolation(path, *_problem_and_remedy(detail, path, root, spelling))


def _path_in_file(location: Path, root: type[BaseModel]) -> Path:
    """`location` without what pydantic adds and the file does not hold: `[key]`, and the branch of a tagged union."""
    path: Path = ()
    for step in location[:-1] if location[-1] == "[key]" else location:
        field = _find_declaration(root, path, key=False)[1] if path else None
        if field is None or str(step) not in _branch_names(field):
            path = (*path, step)
    if path[-1] == "name" and path[-3] in NAMED:
        path = path[:-1]  # the name is the key it is filed under
    return path


def _branch_names(field: FieldInfo) -> Iterator[str]:
    """Yield the name of each branch of a field that is a tagged union."""
    left: list[Any] = [field.annotation]
    while left:
        annotation = left.pop()
        if get_origin(annotation) is Annotated:
            yield from (one.tag for one in annotation.__metadata__ if isinstance(one, Tag))
        left += get_args(annotation)


def _problem_and_remedy(
    detail: ErrorDetails, path: Path, root: type[BaseModel], spelling: Mapping[Path, str]
) -> tuple[str, str]:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    owner, field, annotation = _find_declaration(root, path, key=detail["loc"][-1] == "[key]")
    example = _example_of_field(field)
    like = f", like {example}" if example else ""
    if kind == "missing":
        return "is missing", f"write {path[-1]}: {example or '...'}"
    if kind in ("extra_forbidden", "invalid_key"):
        return _describe_unknown_key(path, owner)
    if holds_secret(path):
        text = "this"
    elif isinstance(value, dict | list | tuple):
        text = "a mapping" if isinstance(value, dict) else "a list"
    else:
        text = truncate(spelling.get(path, value))
    if kind == REFUSED:
        return context["what"].replace("{value}", text), context["right"]
    if value is None:
        return "is empty", f"give it a value{like}, or remove the key"
    if kind in ("string_type", "path_type"):
        if isinstance(value, bool | int | float):
            return f"{text} is a {'true/false value' if isinstance(value, bool) else 'number'} to YAML", (
                f'write it in quotes: "{text}"' if text == spelling.get(path) else "write it in quotes"
            )
        return f"{text} is not a text", f"write one text{like}"
    if kind in ("int_type", "bool_type"):
        return _explain_scalar(kind, value, text, example, quoted=path not in spelling)
    if kind in ("model_type", "model_attributes_type", "mapping_type", "dict_type"):
        return f"{text} is not a mapping", f"write keys with values below it{like}"
    if kind in ("tuple_type", "list_type"):
        return f"{text} is not a list", f"write [...] or lines beginning with '- '{like}"
    if kind == "literal_error":
        return _explain_choice(annotation, text)
    if kind == "greater_than_equal":
        return f"{text} is too small", f"write at least {context['ge']}"
    if kind == "less_than_equal":
        return f"{text} is too large", f"write at most {context['le']}"
    return detail["msg"], f"write another value{like}"


def _explain_scalar(kind: str, value: object, text: str, example: str, *, quoted: bool) -> tuple[str, str]:
    if kind == "bool_type":
        return f"{text} is not true or false", "write true or false, without quotes"
    if quoted and isinstance(value, str) and value.isascii() and value.strip().isdecimal():
        return f'"{text}" is a text', f"write {text} without quotes"
    return f"{text} is not a whole number", f"write one{f', like {example}' if example else ''}"


def _describe_unknown_key(path: Path, owner: type[BaseModel] | None) -> tuple[str, str]:
    near = _near_key(path, owner)
    return "unknown key", f"did you mean {near}?" if near else f"known keys are {', '.join(_known_keys(path, owner))}"


def _known_keys(path: Path, owner: type[BaseModel] | None) -> list[str]:
    """The keys of the section that a path ends in, without what the loader adds: the file's own path, and names."""
    added = "source" if len(path) == 1 else "name"
    return [key for key in owner.model_fields if key != added] if owner else []


def _near_key(path: Path, owner: type[BaseModel] | None) -> str:
    """Return the known key that an unknown one was probably meant to be; empty for none."""
    return next(iter(get_close_matches(str(path[-1]), _known_keys(path, owner), 1)), "")


def _explain_choice(annotation: Any, text: str) -> tuple[str, str]:
    known = [str(choice) for choice in get_args(annotation)]
    near = get_close_matches(text, known, 1)
    return f"{text} is not known", f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"


def _example_of_field(field: FieldInfo | None) -> str:
    if field is None:
        return ""
    if field.examples:
        return str(field.examples[0])
    if isinstance(field.default, bool):
        return str(field.default).lower()
    return str(field.default) if isinstance(field.default, int | str) else ""


def _find_declaration(
    root: type[BaseModel], path: Path, *, key: bool
) -> tuple[type[BaseModel] | None, FieldInfo | None, Any]:
    """The class whose key ends the path, that key's field, and the bare type of the value there.

    Class and field are None where the keys are the user's own, and in lists. `key`: the type of that key instead.
    """
    inner: Any = root
    owner: type[BaseModel] | None = None
    field: FieldInfo | None = None
    for place, step in enumerate(path, 1):
        owner = field = None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            owner, field = inner, inner.model_fields.get(str(step))
            inner = _bare_type(field.annotation) if field else None
        elif get_origin(inner) is Mapping:
            inner = _bare_type(get_args(inner)[0 if key and place == len(path) else 1])
        elif get_origin(inner) is tuple:
            inner = _bare_type(get_args(inner)[0])
        else:
            inner = None
    return owner, field, inner


def _bare_type(annotation: Any) -> Any:
    """The type inside Annotated, Optional and unions."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            annotation = next(arg for arg in get_args(annotation) if arg is not type(None))
        else:
            return annotation
