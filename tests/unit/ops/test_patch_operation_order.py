"""The stack without source texts is the one that pyinfra would see."""

from __future__ import annotations

import inspect
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyinfra.api import util

import core.ops.operation as _operation  # noqa: F401 - installs it
from core.ops import patch_operation_order


def test_frames_are_those_of_inspect() -> None:
    theirs, ours = inspect.stack(), patch_operation_order.stack()
    assert [one.frame for one in theirs] == [frame for (frame,) in ours]
    known = [inspect.getframeinfo(one.frame) for one in theirs]
    found = [patch_operation_order.frame_info(frame) for (frame,) in ours]
    assert [(one.filename, one.function) for one in known] == [(one.filename, one.function) for one in found]
    # This line and the one after it are elsewhere by now; all others are where they were.
    assert [one.lineno for one in known][1:] == [one.lineno for one in found][1:]


def test_the_order_is_pyinfras_and_costs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cast(Any, SimpleNamespace(current_deploy_filename=__file__))

    def timed() -> tuple[list[int], float]:
        begun = time.process_time()
        orders = [util.get_operation_order_from_stack(state) for _ in range(20)]
        assert all(order == orders[0] for order in orders)
        return orders[0], time.process_time() - begun

    ours, cheap = timed()
    monkeypatch.setattr(util, "stack", inspect.stack)
    monkeypatch.setattr(util, "getframeinfo", inspect.getframeinfo)
    theirs, dear = timed()
    assert ours[1:] == theirs[1:]
    assert len(ours) == len(theirs) > 1
    assert cheap < dear / 2
