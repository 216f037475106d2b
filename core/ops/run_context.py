"""What a run of pyinfra knows while it lasts, and what is known of each of its hosts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

T = TypeVar("T")
_contexts: WeakKeyDictionary[State | Host, dict[Hashable, Any]] = WeakKeyDictionary()


def run_value(of: State | Host, make: Callable[[], T], key: Hashable = None) -> T:
    """Return a value of a run, or of one host of it, which is made when it is first asked for.

    make: the type of the value, or what makes it. key: tells the values of one type apart; `make` by default.
    """
    values, name = _contexts.setdefault(of, {}), make if key is None else key
    if name not in values:
        values[name] = make()
    return cast(T, values[name])
