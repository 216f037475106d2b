"""Bring models to one node: from another one as soon as any has their files, else from outside."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import gevent
from pyinfra.api.host import Host

from core.model import SecretError, model_lock
from core.model.lock_file import lock_path
from core.model.model_lock import COMMIT, ModelRecord
from core.ops import detached_unit
from core.ops.delivery import fetch
from core.ops.detached_unit import POLL_SECONDS, TransferStoppedError
from core.ops.distribution import Route
from roles.models import choice, desired, operator_folder, scripts
from roles.models.desired import ModelGoal
from roles.models.model_sources import ModelSources, ModelTransfers
from roles.models.scripts import FetchState, LackingFile

LISTING_SECONDS = 1800.0
"""Seconds for the list of a revision, with the small files that have no sha256 in it."""
HUB = "https://huggingface.co"
ENDPOINT = "HF_ENDPOINT"
"""The variable by which the hub's own programs find a mirror."""


@dataclass
class _Rate:
    """Bytes a second between two reports."""

    received: int = 0
    at: float = field(default_factory=time.monotonic)

    def text(self, what: str, done: int, total: int, received: int) -> str:
        """Return the progress as text, and begin the next interval."""
        now = time.monotonic()
        rate = max(received - self.received, 0) / max(now - self.at, 0.001)
        self.received, self.at = received, now
        if not total:
            return f"{what}: begins"
        left = f", {desired.amount(rate)}/s, {desired.time_left((total - done) / rate)} left" if rate >= 1 else ""
        return f"{what}: {desired.amount(done)} of {desired.amount(total)}{left}"


@dataclass(frozen=True)
class ModelDelivery:
    """Deliveries of one node."""

    host: Host
    node: str
    fleet: ModelSources

    def deliver(self, name: str) -> None:
        """Bring a model to this node as a whole. Raises TransferStoppedError, or OSError for the line."""
        transfers = self.fleet.transfers[name]
        with transfers.delivery(self.node, name):
            self._ensure_file_list(transfers)
            self._fetch_model(transfers)
            transfers.holders.add(self.node)

    def _ensure_file_list(self, transfers: ModelTransfers) -> None:
        """Wait for the list of files, or make it on the first node."""
        begun = time.monotonic()
        while transfers.goal.record is None:
            if transfers.broken:
                raise TransferStoppedError(transfers.broken)
            first = min({*transfers.pending(begun), self.node}, key=self.fleet.survey.roads.rank.__getitem__)
            if transfers.listing is None and first == self.node:
                transfers.listing = self.node
                try:
                    self._record_file_list(transfers)
                except TransferStoppedError:
                    transfers.broken = f"{self.node} could not list its files"
                    raise
                finally:
                    transfers.listing = None
            else:
                gevent.sleep(POLL_SECONDS)

    def _record_file_list(self, transfers: ModelTransfers) -> None:
        model = transfers.goal.model
        revision: str | None = None
        try:
            if model.path is not None:
                files, texts = operator_folder.listed(
                    model.path, model.files, lambda path: self.host.log(f"{model.name}: reading {path} on this machine")
                )
                found: dict[str, object] = {"files": files, "configurations": texts}
            else:
                found = self._list_chosen_files(transfers.goal)
                revision = str(found["revision"])
        except ValueError as unknown:
            raise TransferStoppedError(f"the list of files cannot be used: {unknown}") from None
        try:
            record = desired.record_of(model, revision, found["files"], found["configurations"])
        except ValueError as unknown:
            raise TransferStoppedError(f"the list of files cannot be used: {unknown}") from None
        self._write_lock_record(transfers, record)

    def _list_chosen_files(self, goal: ModelGoal) -> dict[str, object]:
        """Return revision, files and configurations of what is chosen of a model on the hub. Raises ValueError."""
        model, at = goal.model, goal.revision or goal.model.revision
        self.host.log(f"{model.name}: listing {model.source} at {at[:12] if COMMIT.fullmatch(at) else at}")
        endpoint, token = self._hub_address_and_token(goal)
        job = {"endpoint": endpoint, "name": model.source, "token": token, "folder": str(model.folder)}

        def ask(verb: str, revision: str, *keys: str, **more: object) -> dict[str, Any]:
            script, stdin = scripts.ask_hub(model, verb, {**job, "revision": revision, **more})
            return scripts.answered(detached_unit.send(self.host, script, stdin, LISTING_SECONDS), *keys)

        there = ask("list", at, "paths", "indexes")
        if not isinstance(there["paths"], list) or not isinstance(there["indexes"], dict):
            raise ValueError("unexpected output")  # noqa: TRY004 - of an answer, not of an argument
        paths = choice.chosen(model.files, there["paths"], there["indexes"])
        return ask("resolve", str(there["revision"]), "files", "configurations", paths=paths)

    def _write_lock_record(self, transfers: ModelTransfers, record: ModelRecord) -> None:
        rack, model = self.fleet.survey.rack, transfers.goal.model
        lock = lock_path(rack.source)
        try:
            model_lock.record(lock, rack.models, {model.name: record})
        except OSError as error:
            raise TransferStoppedError(f"{lock}: cannot be written: {error.strerror}") from None
        what = f"commit {record.revision[:12]}" if record.revision else f"the folder {model.path}"
        self.host.log(
            f"{model.name}: recorded {what}: {len(record.files)} files, {desired.amount(record.size)}, in {lock.name}"
        )
        transfers.goal = ModelGoal(model, record)

    def _hub_address_and_token(self, goal: ModelGoal) -> tuple[str, str | None]:
        """Return the address of the hub, and the token for it."""
        endpoint = (os.environ.get(ENDPOINT) or HUB).rstrip("/")
        parts = urlsplit(endpoint)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.query:
            raise TransferStoppedError(f"{ENDPOINT} is not the address of a hub; write it like {HUB}")
        if goal.model.token is None:
            return endpoint, None
        if parts.scheme != "https":
            raise TransferStoppedError(f"{ENDPOINT} has no TLS, and the model has a token; use an https address")
        try:
            return endpoint, goal.model.token.resolve().get_secret_value()
        except SecretError as error:
            raise TransferStoppedError(f"token: {error}") from None

    def _fetch_model(self, transfers: ModelTransfers) -> None:
        self._wait_for_earlier(transfers)
        roads = self.fleet.survey.roads
        fetch(
            roads,
            self.node,
            transfers,
            partial(self._copy_from_node, transfers),
            partial(self._pull_from_outside, transfers),
        )

    def _wait_for_earlier(self, transfers: ModelTransfers) -> None:
        """Wait for a transfer of an earlier, killed run that is still active. What it has brought is found after."""
        name = transfers.goal.model.name
        if scripts.unit(name).name not in self.fleet.survey.views[self.node].running:
            return
        transfers.receiving[self.node] = None
        transfers.started.add(self.node)
        try:
            self.host.log(f"{name}: an earlier run still fetches it; waiting for that")
            self._watch_fetch_program(transfers, "an earlier run")
        finally:
            transfers.stop_receiving(self.node)

    def _copy_from_node(self, transfers: ModelTransfers, route: Route) -> bool:
        name = transfers.goal.model.name
        transfers.receiving[self.node] = route.source
        try:
            if not transfers.wait_for_start(route.source):
                return False
            self.host.log(f"{name}: from {route}")
            user = self.fleet.survey.rack.access.user
            done = self._run_fetch_program(
                transfers, scripts.from_node(transfers.goal.model, route, user), route.source
            )
            if done.fine:
                transfers.holders.add(self.node)
                return True
        finally:
            transfers.stop_receiving(self.node)
        if not done.source_stopped or route.source in transfers.holders:
            transfers.failed.add(route)
        self.host.log(f"{name}: {route} could not give it: {scripts.reason(done)}")
        return False

    def _pull_from_outside(self, transfers: ModelTransfers, last_resort: bool) -> None:
        goal = transfers.goal
        if last_resort:
            self.host.log(f"{goal.model.name}: no node could give it; as the last resort it comes from outside")
        try:
            with transfers.pull(self.node, f"{self.node} could not fetch it", last_resort=last_resort):
                if goal.model.path is not None:
                    self._upload_from_operator(transfers)
                else:
                    self._download_from_hub(transfers)
                transfers.holders.add(self.node)
        finally:
            transfers.stop_receiving(self.node)

    def _download_from_hub(self, transfers: ModelTransfers) -> None:
        goal = transfers.goal
        if goal.record is None or goal.record.revision is None or goal.model.source is None:
            raise TransferStoppedError("its commit was not recorded")
        endpoint, token = self._hub_address_and_token(goal)
        self.host.log(f"{goal.model.name}: fetching {goal.model.source} at {goal.record.revision[:12]}")
        transfers.receiving[self.node] = None
        done = self._run_fetch_program(
            transfers, scripts.from_hub(endpoint, goal.model.source, goal.record.revision, token), "the hub"
        )
        if not done.fine:
            raise TransferStoppedError(f"it cannot be fetched: {scripts.reason(done)}")

    def _upload_from_operator(self, transfers: ModelTransfers) -> None:
        """Send what the node lacks; it checks each file itself, and what is wrong is sent once more."""
        goal, times = transfers.goal, dict[str, int]()
        while True:
            done = self._run_fetch_program(transfers, None, "this machine")
            if not done.fine:
                raise TransferStoppedError(scripts.reason(done))
            if not done.lacks:
                return
            for lacking in done.lacks:
                times[lacking.path] = times.get(lacking.path, 0) + 1
                if times[lacking.path] > 2:
                    raise TransferStoppedError(
                        f"{goal.model.path}: {lacking.path} has other bytes than in the lock file; "
                        "restore the file, or remove the model from the lock file"
                    )
            self._send_files(transfers, done)

    def _send_files(self, transfers: ModelTransfers, lacks: FetchState) -> None:
        goal, rate = transfers.goal, _Rate()
        files = {file.path: file for file in goal.files}
        sizes = [files[lacking.path].size - lacking.start for lacking in lacks.lacks if lacking.path in files]
        total, done, reported = sum(sizes), 0, time.monotonic()

        def sent(number: int) -> None:
            nonlocal done, reported
            done += number
            if time.monotonic() - reported >= detached_unit.PROGRESS_SECONDS:
                reported = time.monotonic()
                self.host.log(rate.text(f"{goal.model.name} from this machine", done, total, done))

        for lacking in lacks.lacks:
            self._send_one(transfers, lacking, sent)

    def _send_one(self, transfers: ModelTransfers, lacking: LackingFile, sent: operator_folder.Sent) -> None:
        model = transfers.goal.model
        file = next((file for file in transfers.goal.files if file.path == lacking.path), None)
        if file is None or model.path is None:
            raise TransferStoppedError(f"the node asks for {lacking.path!r}, which is not a file of the model")
        try:
            script = scripts.append(lacking.part, lacking.start)
        except ValueError as unknown:
            raise TransferStoppedError(str(unknown)) from None
        operator_folder.send_rest(self.host, model.path, file, lacking.start, script, sent)

    def _run_fetch_program(
        self, transfers: ModelTransfers, source: dict[str, object] | None, called: str
    ) -> FetchState:
        """Run the program on the node until it has ended."""
        goal = transfers.goal
        script, stdin = scripts.start(goal.model, scripts.job(goal.model, goal.files, source))
        detached_unit.send(self.host, script, stdin)
        if self.node in transfers.receiving:
            transfers.started.add(self.node)
        return self._watch_fetch_program(transfers, called)

    def _watch_fetch_program(self, transfers: ModelTransfers, source: str) -> FetchState:
        name, rate = transfers.goal.model.name, _Rate()

        def report(now: FetchState) -> None:
            self.host.log(rate.text(f"{name} from {source}", now.done, now.total, now.received))

        return detached_unit.watch(self.host, scripts.unit(name), source, scripts.progress, report)
