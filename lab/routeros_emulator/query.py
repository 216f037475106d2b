"""Query words (``?…``) evaluated on a stack (MikroTik manual, 'API', 'Queries')."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError

_OPERATION = re.compile(r"(\d+)(.?)|([!&|.])")
_TRUTH = {"yes": "true", "no": "false"}


def matches(row: Mapping[str, str], queries: Sequence[str]) -> bool:
    """Say whether a row answers a query; without query words every row does.

    Several values left on the stack are joined by *and*, which is how clients send plain filters.
    Raises TrapError for an operation that needs more values than there are.
    """
    stack: list[bool] = []
    for word in queries:
        if word.startswith("?#"):
            _run_operations(stack, word[2:])
        else:
            stack.append(_test_word(row, word[1:]))
    return all(stack)


def _test_word(row: Mapping[str, str], text: str) -> bool:
    if text.startswith("-"):
        return text[1:] not in row
    sign = text[0] if text[:1] in ("=", "<", ">") else "="
    name, separator, wanted = text.removeprefix(sign).partition("=")
    if not separator:
        return name in row
    value = row.get(name)
    if value is None:
        return False
    if sign == "=":
        return value == wanted or (value in _TRUTH.values() and value == _TRUTH.get(wanted))
    return _is_less(value, wanted) if sign == "<" else _is_less(wanted, value)


def _is_less(left: str, right: str) -> bool:
    try:
        return int(left) < int(right)
    except ValueError:
        return left < right


def _run_operations(stack: list[bool], operations: str) -> None:
    position = 0
    after_index = False
    while position < len(operations):
        match = _OPERATION.match(operations, position)
        if match is None:
            raise TrapError("invalid query operation", ARGUMENT_VALUE)
        try:
            if match[1] is not None:
                value = stack[-1 - int(match[1])]
                if match[2]:
                    stack.append(value)
                else:
                    stack[:] = [value]
                position, after_index = match.end(1), True
                continue
            _apply_operation(stack, match[3], after_index)
        except IndexError:
            raise TrapError("query stack is empty", ARGUMENT_VALUE) from None
        position, after_index = match.end(), False


def _apply_operation(stack: list[bool], operation: str, after_index: bool) -> None:
    if operation == "!":
        stack[-1] = not stack[-1]
    elif operation == "." and not after_index:
        stack.append(stack[-1])
    elif operation in "&|":
        right, left = stack.pop(), stack.pop()
        stack.append((left and right) if operation == "&" else (left or right))
