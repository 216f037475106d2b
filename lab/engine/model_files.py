"""The files of models that a command line names, and a digest of what was read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def named_paths(words: list[str]) -> list[str]:
    """Return the files and folders of models that a command line names, in JSON too, and its template of chats."""
    found = set()
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        option, value = (option, value) if equals and option.startswith("--") else (words[number - 1], word)
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        texts = [read]
        while texts:
            text = texts.pop()
            if isinstance(text, (dict, list)):
                texts += text.values() if isinstance(text, dict) else text
            elif isinstance(text, str) and (text.startswith("/models/") or option == "--chat-template"):
                found.add(text)
    return sorted(found)


def content_digest(path: str) -> str:
    """Return a digest of a file, or of the names and contents of all files of a folder; hidden ones do not count."""
    root = Path(path)
    files = sorted(one for one in root.rglob("*") if one.is_file()) if root.is_dir() else [root]
    digest = hashlib.sha256()
    for file in files:
        place = file.relative_to(root)
        if not any(part.startswith(".") for part in place.parts):
            digest.update(f"{place} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
