"""A mapping that cannot be changed and can be hashed, so that a whole rack can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenMap(dict[Key, Value]):
    """A dict (so it copies, pickles and becomes JSON like one) whose changing methods raise TypeError."""

    def __init__(self, entries: Mapping[Key, Value]) -> None:
        super().__init__(entries)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[type[FrozenMap[Key, Value]], tuple[dict[Key, Value]]]:
        return type(self), (dict(self),)

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("a rack does not change once it is loaded")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
