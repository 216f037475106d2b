"""A zram device gives its memory back, though udev has it open for a moment after every use."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from roles.memory.apply import zram_reset_script


def _run_reset(folder: Path, asks: int = 50) -> subprocess.CompletedProcess[str]:
    script = zram_reset_script("zram0").replace("/sys/block", str(folder)).replace("-lt 50", f"-lt {asks}")
    return subprocess.run(["dash", "-euc", script], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """What cannot be written to, as the kernel's file while the device is open."""
    reset = tmp_path / "zram0" / "reset"
    reset.mkdir(parents=True)
    return reset


def test_a_free_device_is_reset_at_once(busy: Path) -> None:
    busy.rmdir()
    busy.touch()
    assert _run_reset(busy.parents[1], asks=1).returncode == 0
    assert busy.read_text() == "1\n"


def test_a_device_that_udev_looks_at_is_asked_again(busy: Path) -> None:
    def closes() -> None:
        busy.rmdir()
        busy.touch()

    timer = threading.Timer(0.5, closes)
    timer.start()
    try:
        assert _run_reset(busy.parents[1]).returncode == 0
    finally:
        timer.join()
    assert busy.read_text() == "1\n"


def test_a_device_that_is_gone_is_done(tmp_path: Path) -> None:
    assert _run_reset(tmp_path, asks=1).returncode == 0


def test_a_device_in_use_is_reported(busy: Path) -> None:
    ended = _run_reset(busy.parents[1], asks=2)
    assert ended.returncode == 1
    assert "zram0 is still in use; lsof /dev/zram0 tells by whom\n" in ended.stderr
