"""A driver in a folder: libcuda.so.1, compiled from cuda_standin.c, and an nvidia-smi that prints what it is told."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda_standin.c")
LINE = "2190, 61.20, 55, 30, 96, P0, 0x0000000000000004"
_SMI = """\
#!/bin/sh
cd "${0%/*}" || exit 1
[ ! -e hangs ] || exec sleep 1000
[ ! -e broken ] || { cat broken; exit 9; }
case $* in
*compute-apps*) cat apps ;;
*-lms*) [ ! -e stalls ] || exec sleep 1000; while cat line; do sleep 0.2; [ ! -e ends ] || exit 1; done ;;
*) cat line ;;
esac
"""


def make_driver(folder: Path) -> Path:
    """Make the driver of an idle, sound GPU in this folder. Files in it change it: `line`, `apps`, `broken` (what
    nvidia-smi complains of), `hangs`, `stalls` and `ends` (it hangs always, or hangs or ends when it is to print a line
    a period).
    """
    folder.mkdir(parents=True)
    command = ["gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
    subprocess.run([*command, "-o", folder / "libcuda.so.1", SOURCE], check=True)
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "line").write_text(f"{LINE}\n")
    (folder / "apps").touch()
    return folder


def environment(driver: Path, **more: str) -> dict[str, str]:
    """The environment in which a program finds this driver and no other."""
    path = f"{driver}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": str(driver), **more}


def left_processes(mark: str) -> list[str]:
    """The same as `processes`, once there are none, or after a minute."""
    until = time.monotonic() + 60
    while (found := processes(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def processes(mark: str) -> list[str]:
    """The command lines of the processes that have this text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended meanwhile
            continue
    return found
