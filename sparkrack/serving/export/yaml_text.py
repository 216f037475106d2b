"""YAML that every parser reads alike: a text stands in quotes unless no release of YAML takes it for anything else."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
"""What YAML 1.1 does not take for a text, and tools that read 1.1 and 1.2 do."""


class Script(str):
    """A text of several lines that is written as such."""

    __slots__ = ()


class _Representer(SafeRepresenter):
    pass


def _represent_text(writer: _Representer, value: str) -> ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


def _represent_script(writer: _Representer, value: Script) -> ScalarNode:
    return writer.represent_scalar("tag:yaml.org,2002:str", str(value), style="|")


_Representer.add_representer(str, _represent_text)
_Representer.add_representer(Script, _represent_script)


def yaml_text(data: Any) -> str:
    """Return data of plain types as one YAML document, in the order of its mappings."""
    writer: Any = YAML(typ="safe", pure=True)
    writer.Representer = _Representer
    writer.default_flow_style, writer.width, writer.sort_base_mapping_type_on_output = False, 10**6, False
    writer.representer.ignore_aliases = lambda _data: True
    written = StringIO()
    writer.dump(data, written)
    return written.getvalue()
