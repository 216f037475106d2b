"""Pages of HTML from a template beside the module that fills it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


def page_template(module: str, **filters: Callable[..., object]) -> Template:
    """Return `page.html.j2` of the folder of a module: what it is filled with is escaped, and a name without a value is
    an error.

    Args:
        module: the `__file__` of the module.
        filters: functions that the template uses as filters, by name.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(module).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template("page.html.j2")
