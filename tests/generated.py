"""Blocks of documents that are made from what the program prints: compared by tests, renewed with UPDATE_DOCS=1."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent


def check(document: str, block: str, text: str) -> None:
    """The named block of a document, in a fence or not, holds exactly this text. Raises AssertionError with how to
    renew it."""
    path = REPOSITORY / document
    content = path.read_text()
    begin = re.escape(f"<!-- generated: {block} -->")
    found = re.search(rf"({begin}\n(?:```\w*\n)?)(.*?)((?:```\n)?<!-- end -->)", content, re.DOTALL)
    if not found and os.environ.get("UPDATE_DOCS") and document.startswith("tests/"):
        path.write_text(f"{content}\n<!-- generated: {block} -->\n```text\n{text}```\n<!-- end -->\n")
        return
    assert found, f"{document} has no generated block {block}"
    if found[2] == text:
        return
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(content[: found.start(2)] + text + content[found.end(2) :])
        return
    raise AssertionError(
        f"{document}: the block {block} is not what the program prints; UPDATE_DOCS=1 renews it:\n{text}"
    )


_counted: Counter[str] = Counter()


def check_in_test(document: str, text: str) -> None:
    """The same for the block that has the name of the test that runs, and a number: its first text, its second one."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].removesuffix(" (call)").removesuffix(" (setup)")
    name = re.sub(r"[^A-Za-z0-9_.,:=/ -]+", " ", test).strip()
    _counted[f"{document} {name}"] += 1
    check(document, f"{name} {_counted[f'{document} {name}']}", text)
