"""Bring images to one node: from another one when any has them, else from outside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pyinfra.api.host import Host

from core.advisories.advisories import NCCL, PIP_WHEEL, advisory_line, known_against
from core.model import image_lock, lock_file, mebibytes
from core.model.image_lock import Pin
from core.ops import distribution
from core.ops.delivery import fetch
from core.ops.detached_unit import TransferStoppedError
from core.ops.shell import run_script
from roles.images import desired, scripts
from roles.images.facts import ImageStep
from roles.images.image_sources import ImageSources, ImageTransfers
from roles.images.transfer import Transfer, reason
from roles.preflight.options import PreflightOptions

_UNKNOWN = "what it is was not recorded"


@dataclass(frozen=True)
class ImageDelivery:
    """Deliveries of one node."""

    host: Host
    node: str
    fleet: ImageSources

    def deliver(self, step: ImageStep) -> None:
        """Fetch an image and give it its name. Raises TransferStoppedError, or OSError for the line."""
        transfers = self.fleet.transfers[step.goal.image.name]
        with transfers.delivery(self.node, transfers.goal.image.local):
            self._fetch_image(transfers)
            self._make_transfer(transfers).send(scripts.name(transfers.goal.image, self._pin_image(transfers).id))
            transfers.holders.add(self.node)
        # After the other nodes may take it: they do not wait for the answer.
        if transfers.asks_nccl:
            transfers.asks_nccl = False
            self.ask_nccl(transfers)

    def ask_nccl(self, transfers: ImageTransfers) -> None:
        """Ask a container what the image has of NCCL, and record it: `sparkrack check` judges it without a connection.

        What docker could not do is not recorded, so that the next run asks again. Raises TransferStoppedError where the
        lock file cannot be written, OSError for the line.
        """
        local, pin = transfers.goal.image.local, self._pin_image(transfers)
        _, lines, complaints = run_script(self.host, scripts.ask_nccl(pin.id), scripts.NCCL_SECONDS + 30)
        found = scripts.parse_nccl(lines, complaints)
        if found is None:
            why = "; ".join(complaints[-3:]) or "no message"
            self.host.log(f"{local}: its NCCL could not be read in a container, so the next run asks again: {why}")
            return
        self._record_pin(transfers, replace(pin, nccl=found))
        self.host.log(f"{local}: NCCL {f'{found.version} ({found.build})' if found.version else 'unknown'}")
        for row in known_against(NCCL, found.version or "", (PIP_WHEEL,) if found.build == "wheel" else ()):
            self.host.log(f"{local}: {advisory_line(row, found.version or '')}")

    def _make_transfer(self, transfers: ImageTransfers) -> Transfer:
        survey = self.fleet.survey
        return Transfer(self.host, transfers.goal.image, survey.rack.access.user, list(survey.views[self.node].room))

    def _fetch_image(self, transfers: ImageTransfers) -> None:
        if self._left_running(transfers):
            return
        copy, pull = partial(self._copy_from_source, transfers), partial(self._pull_image, transfers)
        fetch(self.fleet.survey.roads, self.node, transfers, copy, pull)

    def _left_running(self, transfers: ImageTransfers) -> bool:
        """Return whether a transfer of an earlier, killed run was still active, and has delivered the image."""
        image = transfers.goal.image
        if scripts.unit(image) not in self.fleet.survey.views[self.node].running:
            return False
        if not transfers.holders and transfers.pulling is None:
            transfers.pulling = self.node
        self.host.log(f"{image.local}: an earlier run still fetches it; waiting for that")
        self._make_transfer(transfers).watch("an earlier run", transfers.size)
        if self._has_arrived(transfers):
            return True
        if transfers.pulling == self.node:
            transfers.pulling = None
        return False

    def _copy_from_source(self, transfers: ImageTransfers, route: distribution.Route) -> bool:
        image, identity = transfers.goal.image, self._pin_image(transfers).id
        transfer = self._make_transfer(transfers)
        transfers.receiving[self.node] = route.source
        try:
            if not transfers.wait_for_start(route.source):
                return False
            self.host.log(f"{image.local}: from {route}")
            transfer.start_copy(scripts.job(route, transfer.user, identity, transfers.size or 0), transfers.size or 0)
            transfers.started.add(self.node)
            done = transfer.watch(route.source, transfers.size)
            if done.fine and self._has_arrived(transfers):
                self.host.log(f"{image.local}: {(done.copied or 0) // 10**6} MB came from {route.source}")
                transfers.holders.add(self.node)
                return True
        finally:
            transfers.stop_receiving(self.node)
        if done.fine:
            self._reject_image(transfers, done.loaded)
        if not done.source_stopped or route.source in transfers.holders:
            transfers.failed.add(route)
        self.host.log(f"{image.local}: {route} could not give it: {reason(done)}")
        return False

    def _pull_image(self, transfers: ImageTransfers, last_resort: bool) -> None:
        image, pin = transfers.goal.image, transfers.pin
        if pin and not pin.digest:
            raise TransferStoppedError(
                f"no node of this run can give {desired.short(pin.id)}, and it is from no registry: "
                "it was made on a node"
            )
        reference = image.outside(pin.digest if pin else None)
        if last_resort:
            self.host.log(f"{image.local}: no node could give it; as the last resort it is pulled from outside")
        with transfers.pull(self.node, f"{self.node} could not pull it", last_resort=last_resort):
            self._pull_and_check(transfers, reference)

    def _pull_and_check(self, transfers: ImageTransfers, reference: str) -> None:
        self.host.log(f"{transfers.goal.image.local}: pulling {reference}")
        transfer = self._make_transfer(transfers)
        kept_free = self.fleet.survey.rack.options(PreflightOptions).disk_free
        transfer.start(scripts.pull(reference), mebibytes(kept_free) << 20)
        done = transfer.watch("outside", transfers.size)
        if not done.fine:
            raise TransferStoppedError(f"{reference} cannot be pulled: {reason(done)}")
        if not self._has_arrived(transfers):
            self._reject_image(transfers, self._inspect_image(transfers, reference)[0].id)

    def _has_arrived(self, transfers: ImageTransfers) -> bool:
        """Return whether the node has the image now. The identity of a new image goes to the lock file."""
        image = transfers.goal.image
        if transfers.pin:
            fine, _, _ = run_script(self.host, scripts.inspect(transfers.pin.id))
            return fine
        try:
            pin, size = self._inspect_image(transfers, image.outside(None))
        except TransferStoppedError:
            return False
        self._record_pin(transfers, pin)
        self.host.log(f"{image.local}: recorded as {pin.digest or 'no digest'}, ID {desired.short(pin.id)}")
        transfers.size = size
        return True

    def _record_pin(self, transfers: ImageTransfers, pin: Pin) -> None:
        rack = self.fleet.survey.rack
        lock = lock_file.lock_path(rack.source)
        try:
            image_lock.record(lock, rack.images, {transfers.goal.image.name: pin})
        except OSError as error:
            raise TransferStoppedError(f"{lock}: cannot be written: {error.strerror}") from None
        transfers.pin = pin

    def _inspect_image(self, transfers: ImageTransfers, reference: str) -> tuple[Pin, int]:
        """Return the identity of an image on this node, and its size."""
        lines = self._make_transfer(transfers).send(scripts.inspect(reference))
        try:
            return scripts.inspected(transfers.goal.image, lines)
        except ValueError:
            raise TransferStoppedError(f"docker does not say what {reference} is") from None

    def _reject_image(self, transfers: ImageTransfers, identity: str | None) -> None:
        """Reject a delivered image that is not the requested one: remove it, unless it existed before or is in use."""
        if identity and self.fleet.survey.views[self.node].stock.of(identity) is None:
            run_script(self.host, scripts.drop(identity))
        raise TransferStoppedError(
            f"what came has the ID {identity or 'unknown'}, wanted {self._pin_image(transfers).id}; "
            "do all nodes keep images in the same kind of store (docker info, Storage Driver)?"
        )

    def _pin_image(self, transfers: ImageTransfers) -> Pin:
        if transfers.pin is None:
            raise TransferStoppedError(_UNKNOWN)
        return transfers.pin
