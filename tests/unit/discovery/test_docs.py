"""What the documentation shows: a file that is written, and the help of both commands."""

from __future__ import annotations

import pytest

from sparkrack.discovery.yaml_writer import text
from tests import generated
from tests.unit.cli.test_cli_document import printed
from tests.unit.discovery.test_fabric_section import playbook
from tests.unit.discovery.worlds import World

__all__ = ["playbook"]


def test_the_adopted_file_in_the_documentation_is_what_is_written(playbook: World) -> None:
    sheet = playbook.sheet()
    sheet.heads[()] = ["Written by sparkrack adopt: this rack as it was found."]
    generated.check("docs/init.md", "adopted", text(sheet))


@pytest.mark.parametrize("verb", ["init", "adopt"])
def test_the_help_in_the_documentation_is_what_is_printed(verb: str) -> None:
    generated.check("docs/init.md", verb, printed(verb))
