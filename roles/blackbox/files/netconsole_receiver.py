#!/usr/bin/python3
"""The receiver of kernel messages that other nodes send by netconsole: each sender has its own file.

    netconsole_receiver.py --listen ADDRESS:PORT --sender NAME=ADDRESS [--sender ...] --folder FOLDER --limit MIB

A line of FOLDER/NAME.log is the time at this node, and what the kernel of NAME sent (extended format: priority,
sequence number, microseconds since its boot, flags; text). A gap in the sequence numbers is a line of its own: UDP
loses messages. Packets of other addresses are dropped; an address can be forged, since netconsole is not encrypted.
A file that reaches half of the limit becomes NAME.log.1 in place of the former one. A line about a panic, a bug or a
watchdog is on the disk before the next packet is read.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

URGENT = re.compile(rb"panic|BUG|watchdog|Oops|lockup", re.IGNORECASE)
SEQUENCE = re.compile(rb"[0-9]{1,10},([0-9]{1,20}),[0-9]{1,20},[^;]*;")
"""The number has 64 bits. A longer one is not of a kernel, and Python refuses to convert a very long one."""
LARGEST = 65535
NOTICE_SECONDS = 300.0
"""Seconds between two lines about packets of addresses that are not declared."""


class SenderLog:
    """The file of one sender."""

    def __init__(self, folder: Path, name: str, limit: int) -> None:
        self.path = folder / f"{name}.log"
        self.limit = limit
        self.next: int | None = None
        self.file = self.path.open("ab")

    def write(self, packet: bytes) -> None:
        """Append a packet, and a line before it when messages are missing."""
        found = SEQUENCE.match(packet)
        # A message that is larger than a packet comes in several, which have one number.
        if found and b"ncfrag=" not in found[0]:
            number = int(found[1])
            if self.next is not None and number > self.next:
                self._write_line(f"sparkrack: {number - self.next} messages are missing".encode())
            self.next = number + 1
        lines = packet.rstrip(b"\n").split(b"\n")
        for line in lines:
            self._write_line(line)
        self.file.flush()
        if URGENT.search(packet):
            os.fsync(self.file.fileno())
        if self.file.tell() >= self.limit // 2:
            self._rotate_file()

    def _write_line(self, text: bytes) -> None:
        stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds").encode()
        shown = bytes(one if 32 <= one < 127 or one == 9 else 63 for one in text)
        self.file.write(stamp + b" " + shown + b"\n")

    def _rotate_file(self) -> None:
        os.fsync(self.file.fileno())
        self.file.close()
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self.file = self.path.open("ab")


def main() -> None:
    """Receive until a signal comes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--listen", required=True, help="address and port, like 10.77.0.11:6666")
    parser.add_argument("--sender", action="append", required=True, help="name and address, like spark2=10.77.0.12")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--limit", required=True, type=int, help="MiB for each sender")
    options = parser.parse_args()
    senders = dict(one.split("=", 1) for one in options.sender)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        logs = {address: SenderLog(options.folder, name, options.limit << 20) for name, address in senders.items()}
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    address, _, port = options.listen.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        try:
            server.bind((address, int(port)))
        except OSError as error:
            sys.exit(f"{options.listen}: {error.strerror}")
        print(f"receives kernel messages of {', '.join(senders)} at {options.listen}", flush=True)
        noticed = 0.0
        while True:
            packet, (source, _port) = server.recvfrom(LARGEST)
            if log := logs.get(source):
                try:
                    log.write(packet)
                except OSError as error:
                    sys.exit(f"{log.path}: {error}")
            elif time.monotonic() - noticed > NOTICE_SECONDS:
                noticed = time.monotonic()
                print(f"{source}: is not a declared sender; dropped", flush=True)


if __name__ == "__main__":
    main()
