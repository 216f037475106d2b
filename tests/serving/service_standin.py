"""Stand-in for systemd with one service, which ends with it.

    service_standin.py UNIT-FILE FOLDER PACE BOUND [WORD...] -- PROGRAM...

It obeys RestartSec and WatchdogSec of the unit file, which is that of the role, times PACE: a program that ended starts
again, and one that does not report in time is killed. BOUND is the unit file of what binds to this service, or `-`;
WORD... stops it when this service ends, if BOUND has BindsTo. FOLDER/NAME.pid has the process of the program.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def setting(unit: Path, key: str) -> float:
    """Return the seconds of a setting, 0 where the unit file has none."""
    found = re.search(rf"^{key}=(\d+)$", unit.read_text(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def main(words: list[str]) -> None:
    """Keep the program running until SIGTERM."""
    parted = words.index("--")
    unit, folder, pace, bound = Path(words[0]), Path(words[1]), float(words[2]), words[3]
    stop, program = words[4:parted], words[parted + 1 :]
    binds = bound != "-" and "\nBindsTo=" in Path(bound).read_text()
    assert "\nRestart=always\n" in unit.read_text()
    pause, limit = setting(unit, "RestartSec") * pace, setting(unit, "WatchdogSec") * pace
    reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reports.bind("")  # an abstract name, which the namespace of the node has for itself
    name = reports.getsockname()
    environment = {**os.environ, "NOTIFY_SOCKET": "@" + os.fsdecode(name[1:])}
    while True:
        process = subprocess.Popen(program, env=environment)
        signal.signal(signal.SIGTERM, lambda *_, one=process: _end_with_service(one))
        file = folder / f"{unit.stem}.pid"
        file.with_suffix(".new").write_text(str(process.pid))
        file.with_suffix(".new").replace(file)
        heard = time.monotonic()
        reports.settimeout(0.1)
        while process.poll() is None:
            try:
                if b"WATCHDOG=1" in reports.recv(4096):
                    heard = time.monotonic()
            except TimeoutError:
                pass
            if limit and time.monotonic() - heard > limit:
                print(f"{unit.stem}: watchdog timeout after {limit:g} s, killed", flush=True)
                process.kill()
                process.wait()
        if binds:
            subprocess.run(stop, check=True)
        time.sleep(pause)


def _end_with_service(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
