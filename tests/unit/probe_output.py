"""Output of a probe script as a node prints it: a line for each answer."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from core.probes.protocol import END


def probe_output(commands: Mapping[str, str | tuple[int, str]], files: Mapping[str, str | None] | None = None) -> str:
    """Return the output for these answers: a text, or exit status and text, of each command; the text of each file,
    None for one that does not exist.
    """
    lines = []
    for path, content in (files or {}).items():
        lines.append(f"{path} absent" if content is None else f"{path} {_encode_text(content)} 0")
    for name, answer in commands.items():
        code, text = (0, answer) if isinstance(answer, str) else answer
        lines.append(f"{name} " + _encode_text(f"{text}\n{code}"))
    return "".join(f"{line}\n" for line in [*lines, END])


def _encode_text(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
