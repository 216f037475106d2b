"""Bring images to one node: from another one when any has them, else from outside."""

from __future__ import annotations

import time
from dataclasses import dataclass

import gevent
from pyinfra.api.host import Host

from roles.images import scripts, spread, state
from roles.images.fleet import Desk, Fleet
from roles.images.transfer import PAUSE, StoppedError, Transfer, reason
from roles.images.view import Step
from sparkrack.fleet import mebibytes, pins
from sparkrack.fleet.pins import Pin
from sparkrack.ops.shell import ask

GRACE = 30.0
"""Seconds in which all nodes of a run should have begun; after that, those that have not are not waited for. Without
`--parallel` or `--serial` all begin at once."""
_UNKNOWN = "what it is was not recorded"


@dataclass(frozen=True)
class Courier:
    """One node's deliveries."""

    host: Host
    node: str
    fleet: Fleet

    def deliver(self, step: Step) -> None:
        """Fetch an image and give it its name. Raises StoppedError, or OSError for the line."""
        desk = self.fleet.desks[step.goal.image.name]
        desk.begun.add(self.node)
        try:
            self._fetch(desk)
            self._transfer(desk).send(scripts.name(desk.goal.image, self._pin(desk).id))
            desk.sources.setdefault(self.node, 0)
        except StoppedError as stopped:
            raise StoppedError(f"{desk.goal.image.local}: {stopped}") from None
        finally:
            self.leave(desk)

    def leave(self, desk: Desk) -> None:
        """Nobody need wait for this node any more."""
        desk.begun.discard(self.node)
        desk.expected.discard(self.node)
        if desk.pulling == self.node:
            desk.pulling = None

    def _transfer(self, desk: Desk) -> Transfer:
        survey = self.fleet.survey
        return Transfer(self.host, desk.goal.image, survey.rack.access.user, list(survey.views[self.node].room))

    def _fetch(self, desk: Desk) -> None:
        if self._left_running(desk):
            return
        begun = time.monotonic()
        while True:
            if desk.broken and not desk.sources:
                raise StoppedError(desk.broken)
            pending = desk.begun if time.monotonic() - begun > GRACE else desk.begun | desk.expected
            roads = self.fleet.survey.roads
            match spread.choose(roads, self.node, desk.sources, pending, desk.pulling, desk.failed):
                case spread.Route() as route:
                    if self._copied(desk, route):
                        return
                case spread.Pull(last_resort):
                    self._pull(desk, last_resort)
                    return
                case spread.Wait():
                    gevent.sleep(PAUSE)

    def _left_running(self, desk: Desk) -> bool:
        """Whether an earlier run, whose end nobody saw, still fetched it, and has brought it."""
        image = desk.goal.image
        if scripts.unit(image) not in self.fleet.survey.views[self.node].running:
            return False
        if not desk.sources and desk.pulling is None:
            desk.pulling = self.node
        self.host.log(f"{image.local}: an earlier run still fetches it; waiting for that")
        self._transfer(desk).watch("an earlier run", desk.size)
        if self._came(desk):
            return True
        if desk.pulling == self.node:
            desk.pulling = None
        return False

    def _copied(self, desk: Desk, route: spread.Route) -> bool:
        image, identity = desk.goal.image, self._pin(desk).id
        transfer = self._transfer(desk)
        desk.sources[route.source] += 1
        try:
            self.host.log(f"{image.local}: from {route}")
            transfer.start(scripts.copy(route, identity), 2 * (desk.size or 0) + state.MARGIN)
            done = transfer.watch(route.source, desk.size)
        finally:
            desk.sources[route.source] -= 1
        if not done.fine:
            desk.failed.add(route)
            self.host.log(f"{image.local}: {route} could not give it: {reason(done)}")
            return False
        if not self._came(desk):
            self._reject(desk, done.loaded)
        return True

    def _pull(self, desk: Desk, last_resort: bool) -> None:
        image, pin = desk.goal.image, desk.pin
        if pin and not pin.digest:
            raise StoppedError(
                f"no node of this run can give {state.short(pin.id)}, and it is from no registry: it was made on a node"
            )
        reference = image.outside(pin.digest if pin else None)
        if last_resort:
            self.host.log(f"{image.local}: no node could give it; as the last resort it is pulled from outside")
            self._pulled(desk, reference)
            return
        desk.pulling = self.node
        try:
            self._pulled(desk, reference)
        except StoppedError:
            desk.broken = f"{self.node} could not pull it"
            raise

    def _pulled(self, desk: Desk, reference: str) -> None:
        self.host.log(f"{desk.goal.image.local}: pulling {reference}")
        transfer = self._transfer(desk)
        transfer.start(scripts.pull(reference), mebibytes(self.fleet.survey.rack.preflight.disk_free) << 20)
        done = transfer.watch("outside", desk.size)
        if not done.fine:
            raise StoppedError(f"{reference} cannot be pulled: {reason(done)}")
        if not self._came(desk):
            self._reject(desk, self._inspected(desk, reference)[0].id)

    def _came(self, desk: Desk) -> bool:
        """Whether the node has the image now. Of one that nobody knew yet, what it is goes to the lock file."""
        image = desk.goal.image
        if desk.pin:
            fine, _, _ = ask(self.host, scripts.inspect(desk.pin.id))
            return fine
        try:
            pin, size = self._inspected(desk, image.outside(None))
        except StoppedError:
            return False
        rack = self.fleet.survey.rack
        lock = pins.lock_path(rack.source)
        try:
            pins.record(lock, rack.images, {image.name: pin})
        except OSError as error:
            raise StoppedError(f"{lock}: cannot be written: {error.strerror}") from None
        self.host.log(f"{image.local}: recorded as {pin.digest or 'no digest'}, ID {state.short(pin.id)}")
        desk.pin, desk.size = pin, size
        return True

    def _inspected(self, desk: Desk, reference: str) -> tuple[Pin, int]:
        """What an image is on this node, and its size."""
        lines = self._transfer(desk).send(scripts.inspect(reference))
        try:
            return scripts.inspected(desk.goal.image, lines)
        except ValueError:
            raise StoppedError(f"docker does not say what {reference} is") from None

    def _reject(self, desk: Desk, identity: str | None) -> None:
        """What came is not what was asked for: it is removed, unless it was there before or something uses it."""
        if identity and self.fleet.survey.views[self.node].stock.of(identity) is None:
            ask(self.host, scripts.drop(identity))
        raise StoppedError(
            f"what came has the ID {identity or 'unknown'}, wanted {self._pin(desk).id}; "
            "do all nodes keep images in the same kind of store (docker info, Storage Driver)?"
        )

    def _pin(self, desk: Desk) -> Pin:
        if desk.pin is None:
            raise StoppedError(_UNKNOWN)
        return desk.pin
