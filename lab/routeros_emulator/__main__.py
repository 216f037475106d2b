"""Run the emulated switch: ``python -m lab.routeros_emulator --config FILE [--fixture FILE] [--factory]``.

It prints one JSON line when it is ready: ``ready``, ``plain_port``, ``tls_port``, ``www_port`` and ``rest_port``
(www-ssl), null for a service that has no port. It runs until SIGTERM or SIGINT. Exit code 2 means that it could not
start; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

from lab.routeros_emulator import fixture
from lab.routeros_emulator.config import EmulatorConfigError, SwitchConfig, read
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.faults import InjectedFaults
from lab.routeros_emulator.fixture import RecordedUnit
from lab.routeros_emulator.journal import CommandJournal
from lab.routeros_emulator.key_store import KeyStoreError
from lab.routeros_emulator.link_watch import LinkWatch
from lab.routeros_emulator.link_wiring import BridgeWiring, LinkWiring, NoWiring
from lab.routeros_emulator.menus import MENUS
from lab.routeros_emulator.persistence import SavedStateError
from lab.routeros_emulator.server import Server
from lab.routeros_emulator.software import SoftwareFile
from lab.routeros_emulator.test_control import Control


async def serve(config: SwitchConfig, recorded: RecordedUnit | None = None, *, factory: bool) -> None:
    """Run a switch until a signal ends it. Raises OSError, SavedStateError, KeyStoreError or ConfigError when it cannot
    start."""
    # It warns of each answer to a client that was killed, which is the client's end and no fault of the switch.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    wires: LinkWiring = BridgeWiring(config.bridge) if config.bridge else NoWiring()
    watch = LinkWatch() if config.bridge else None
    journal = CommandJournal(config.log)
    faults = InjectedFaults()
    control: Control | None = None
    if recorded is not None:
        config = recorded.config(config)
    saved = SoftwareFile(config)
    if factory:
        saved.forget()
    while not ended.is_set():
        config = saved.load(config).config(config)
        device = _make_device(config, recorded, wires, loop, factory=factory)
        restarted = asyncio.Event()
        device.on_restart = restarted.set
        server = Server(device, faults, journal)
        ports = await server.start(config)
        # A restart keeps the ports that the system chose.
        chosen = {"api_port": ports.plain, "tls_port": ports.tls, "www_port": ports.www, "www_ssl_port": ports.rest}
        config, factory = config.model_copy(update=chosen), False
        device.links.boot()
        if watch is not None:
            loop.add_reader(watch, watch.heard, device.links.look)
        device.schedule.boot()
        if control is not None:
            control.attach(device, server)
        else:
            control = Control(device, faults, journal, server)
            if config.control is not None:
                await control.start(config.control)
            ready = {"plain_port": ports.plain, "tls_port": ports.tls, "www_port": ports.www, "rest_port": ports.rest}
            print(json.dumps({"ready": True, **ready}), flush=True)
        await _wait_for_first(ended, restarted)
        await server.stop()
        if watch is not None:
            loop.remove_reader(watch)
        device.schedule.stop()
        device.jobs.stop()
        device.links.stop()
        if not ended.is_set():
            saved.save(device.software)
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), config.away)
    if control is not None:
        control.stop()
    if watch is not None:
        watch.close()
    journal.close()


def _make_device(
    config: SwitchConfig,
    recorded: RecordedUnit | None,
    wires: LinkWiring,
    loop: asyncio.AbstractEventLoop,
    *,
    factory: bool,
) -> EmulatedDevice:
    """Return the switch, with what a real unit showed where that was recorded."""
    if recorded is None:
        return EmulatedDevice(config, MENUS, wires, loop.call_later, factory=factory)
    menus = recorded.menus(MENUS)
    device = EmulatedDevice(config, menus, wires, loop.call_later, factory=factory, fill=recorded.fill)
    device.recorded_links = recorded.recorded_links
    return device


async def _wait_for_first(*events: asyncio.Event) -> None:
    """Wait for one of several events."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def main() -> int:
    """Read the arguments and run; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.routeros_emulator", description="An emulated MikroTik switch of the CRS8xx series."
    )
    parser.add_argument("--config", type=Path, required=True, help="configuration file (JSON)")
    parser.add_argument("--fixture", type=Path, help="be the unit of this record (`sparkrack accept --bundle`)")
    parser.add_argument("--factory", action="store_true", help="forget the saved state first")
    given = parser.parse_args()
    try:
        recorded = fixture.read(given.fixture) if given.fixture else None
        asyncio.run(serve(read(given.config), recorded, factory=given.factory))
    except (EmulatorConfigError, SavedStateError, KeyStoreError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
