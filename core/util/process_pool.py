"""Processes of our own that work side by side, and that end when this run does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

Result = TypeVar("Result")


def map_processes(
    work: Callable[..., Result], calls: Sequence[tuple[Any, ...]], most: int, preload: Sequence[str] = ()
) -> list[Result | None]:
    """Return the result of `work` for each call, in their order; None for a call whose process was killed, for example
    when memory ran out.

    `most`: processes at a time. `preload`: modules that `work` needs besides its own: loaded once, and shared by the
    processes. Raises KeyboardInterrupt when the run is ended by Ctrl-C or SIGTERM; no process remains
    then.
    """
    # Not forked from this process, whose locks and connections they would share, but from one that has only imported
    # what they need: each would take 0.7 s of CPU time for that.
    context = get_context("forkserver")
    # The first one finds our packages: the server of forks begins without sys.path of this process.
    context.set_forkserver_preload(["sparkrack_start", work.__module__, *preload, "core.util.before_forks"])
    # The server of forks may have been started where Ctrl-C was not ignored: its processes begin as it did.
    pool = ProcessPoolExecutor(
        min(most, len(calls) or 1),
        mp_context=context,
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    with _signal_handler_set(signal.SIGTERM, signal.default_int_handler), pool:
        try:
            # Ctrl-C reaches every process of the terminal, and each would print where it was.
            with _signal_handler_set(signal.SIGINT, signal.SIG_IGN):
                futures = [_submit_call(pool, work, call) for call in calls]
            return [_future_result(future) for future in futures]
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def _submit_call(
    pool: ProcessPoolExecutor, work: Callable[..., Result], call: tuple[Any, ...]
) -> Future[Result] | None:
    try:
        return pool.submit(work, *call)
    except BrokenProcessPool:
        return None


def _future_result(future: Future[Result] | None) -> Result | None:
    try:
        return future.result() if future else None
    except BrokenProcessPool:
        return None


@contextmanager
def _signal_handler_set(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Set a signal handler for the block; a no-op outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
