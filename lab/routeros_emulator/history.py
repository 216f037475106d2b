"""The last actions, and safe mode: taking all of them back when a session does not end well."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.request import RequestClient
from lab.routeros_emulator.store import Store, StoreAction

#: Actions that the history holds; safe mode with more of them ends silently (MikroTik manual, 'Configuration
#: management', 'Safe Mode').
DEPTH = 100


class History:
    """The actions that could be undone, oldest first, each with a number for its id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0
        self.actions: deque[tuple[int, StoreAction]] = deque(maxlen=DEPTH)
        self.undoing = False
        store.observers.append(self._record_action)

    def _record_action(self, action: StoreAction) -> None:
        inside = None if self.undoing else self._store.undoable(action)
        if inside is not None:
            self._count += 1
            self.actions.append((self._count, inside))

    def clear(self) -> None:
        """Forget every action."""
        self.actions.clear()

    def undo(self, actions: list[StoreAction]) -> None:
        """Take actions back, newest first. They leave the history; undoing is not an action of its own."""
        self.undoing = True
        try:
            for action in reversed(actions):
                changes = tuple(change.reversed() for change in reversed(action.changes))
                touched = {(change.path, change.id): change.fields() for change in changes}
                self._store.apply(StoreAction(f"undo: {action.text}", action.by, action.time, changes, touched))
        finally:
            self.undoing = False
        kept = [entry for entry in self.actions if all(entry[1] is not action for action in actions)]
        self.actions.clear()
        self.actions.extend(kept)


class SafeMode:
    """The only hold on the configuration (schema: /safe-mode take, release, unroll; print enabled, user, current,
    owner).

    All changes made while it is held, by whatever session, are reverted by ``unroll``. Traps' wordings are inferred.
    ``on_end`` runs when a hold has ended in any way, so that the remaining state can be saved.
    """

    def __init__(self, store: Store, history: History, on_end: Callable[[], None]) -> None:
        self._history = history
        self._on_end = on_end
        self._undoable = store.undoable
        self.holder: RequestClient | None = None
        self.pending: list[StoreAction] = []
        store.observers.append(self._record_pending)

    def _record_pending(self, action: StoreAction) -> None:
        if self.holder is None or self._history.undoing:
            return
        inside = self._undoable(action)
        if inside is None:
            return
        self.pending.append(inside)
        if len(self.pending) > DEPTH:
            self._end_safe_mode()

    def take(self, client: RequestClient, on_error: str) -> None:
        """Hold the configuration for a session.

        ``on_error`` decides what happens when another session holds it: ``release`` keeps that session's changes and
        takes over, ``unroll`` reverts them first, ``abort`` and ``ask`` refuse. That these are the answers to the
        console's question about hijacking safe mode is inferred from their names.
        """
        if self.holder is client:
            return
        if self.holder is not None:
            if on_error == "unroll":
                self.unroll()
            elif on_error == "release":
                self._end_safe_mode()
            else:
                raise failure(f"safe mode is held by {self.holder.owner}")
        self.holder = client

    def release(self, client: RequestClient) -> None:
        """Keep the changes and end the hold; a session that holds nothing is refused."""
        self._require_holder(client)
        self._end_safe_mode()

    def give_up(self, client: RequestClient) -> None:
        """Revert the changes and end the hold, on request of the holder."""
        self._require_holder(client)
        self.unroll()

    def unroll(self) -> None:
        """Revert everything since the hold began, for any session."""
        pending, self.pending = self.pending, []
        self._history.undo(pending)
        self._end_safe_mode()

    def forget(self) -> None:
        """End the hold with everything left as it is, and save nothing."""
        self.holder = None
        self.pending = []

    def _require_holder(self, client: RequestClient) -> None:
        if self.holder is not client:
            raise failure("this session does not hold safe mode")

    def _end_safe_mode(self) -> None:
        self.holder = None
        self.pending = []
        self._on_end()
