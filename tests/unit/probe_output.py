"""Output of a probe script as a node prints it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from core.probes.protocol import END

MARK = "0123456789ABCDEFGHIJabcd"


def probe_output(commands: Mapping[str, str | tuple[int, str]], files: Mapping[str, str | None] | None = None) -> str:
    """Return the output for these answers: a text, or exit status and text, of each command; the text of each file,
    None for one that does not exist.
    """
    answers: list[tuple[str, str, object]] = []
    for path, content in (files or {}).items():
        answers.append((path, "", "absent") if content is None else (path, content, 0))
    for name, answer in commands.items():
        code, text = (0, answer) if isinstance(answer, str) else answer
        answers.append((name, text, code))
    return encode_answers((name, text.encode("utf-8", "surrogateescape"), status) for name, text, status in answers)


def encode_answers(answers: Iterable[tuple[str, bytes, object]]) -> str:
    """Return the output for these answers: name, content and status of each."""
    stream = f"{MARK}\n".encode()
    for name, content, status in answers:
        stream += b"%b\n%b\n%b\n%b\n" % (name.encode(), content, str(status).encode(), MARK.encode())
    return f"{base64.b64encode(stream).decode()}\n{END}\n"


def decode_answers(output: str) -> dict[str, tuple[bytes, bytes]]:
    """Return content and status of each answer that a script printed."""
    *_, line, end = output.splitlines()
    assert end == END
    mark, _, rest = base64.b64decode(line).partition(b"\n")
    *answers, last = rest.split(b"\n" + mark + b"\n")
    assert not last
    found = {}
    for name, _, content in (answer.partition(b"\n") for answer in answers):
        content, _, status = content.rpartition(b"\n")
        found[name.decode()] = (content, status)
    return found
