"""Blocks of documents that are made from what the program prints: compared by tests, renewed with UPDATE_DOCS=1."""

from __future__ import annotations

import os
import re
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent


def check(document: str, block: str, text: str) -> None:
    """The named block of a document, in a fence or not, holds exactly this text. Raises AssertionError with how to
    renew it."""
    path = REPOSITORY / document
    content = path.read_text()
    pattern = re.compile(rf"(<!-- generated: {block} -->\n(?:```\w*\n)?)(.*?)((?:```\n)?<!-- end -->)", re.DOTALL)
    found = pattern.search(content)
    assert found, f"{document} has no generated block {block}"
    if found[2] == text:
        return
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(content[: found.start(2)] + text + content[found.end(2) :])
        return
    raise AssertionError(
        f"{document}: the block {block} is not what the program prints; UPDATE_DOCS=1 renews it:\n{text}"
    )
