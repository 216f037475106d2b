"""Signals to a run, sent for real to a process of its own: the first asks, the second cuts off."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

DRIVER = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
ignored = [int(word) for word in sys.argv[1:]]
for number in ignored:
    signal.signal(number, signal.SIG_IGN)
import gevent
from core.util.signals import SIGNALS, Interrupt
before = [signal.getsignal(number) for number in SIGNALS]
said = lambda text: print(text, flush=True)
try:
    with Interrupt(lambda: said("reported")) as stop:
        assert not stop.asked()
        said(f"ready, ignores {[int(one) for one in SIGNALS if signal.getsignal(one) is signal.SIG_IGN]}")
        for _ in range(6000):
            # Another host's part of the run is what Python happens to be in.
            gevent.joinall([gevent.spawn(gevent.sleep, 0.01)])
            if stop.asked() and not ignored:
                said("asked")
                ignored.append(0)
except KeyboardInterrupt:
    said("cut off")
assert [signal.getsignal(number) for number in SIGNALS] == before
said("end")
"""
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


class Process:
    def __init__(self, *ignored: int) -> None:
        words = [sys.executable, "-c", DRIVER, *map(str, map(int, ignored))]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.expect(f"ready, ignores {list(map(int, ignored))}")

    def expect(self, *lines: str) -> None:
        assert self.process.stdout
        for line in lines:
            assert self.process.stdout.readline() == f"{line}\n"

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        self.process.kill()
        return self.process.wait(60)


@pytest.mark.parametrize(("first", "second"), [(INT, INT), (TERM, TERM), (INT, TERM), (HUP, INT)])
def test_the_first_asks_the_second_cuts_off(first: int, second: int) -> None:
    one = Process()
    one.send(first)
    one.expect("reported", "asked")
    one.send(second)
    one.expect("cut off", "end")
    assert one.process.wait(60) == 0


def test_a_terminal_that_goes_says_so_twice() -> None:
    one = Process()
    for _ in range(3):
        one.send(HUP)
    one.expect("reported", "asked")
    one.send(HUP)
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(0.2)
    one.send(INT)
    one.expect("cut off")
    one.end()


@pytest.mark.parametrize("ignored", [(HUP,), (INT, HUP)], ids=["nohup", "in the background"])
def test_what_was_ignored_stays_so(ignored: Sequence[int]) -> None:
    one = Process(*ignored)
    for number in ignored:
        one.send(number)
    one.send(TERM)
    one.expect("reported")
    one.send(TERM)
    one.expect("cut off", "end")
    one.end()


IN_A_THREAD = """\
import sparkrack.engine.gevent_patch
import os, signal, threading
from core.util.signals import interrupt_main_greenlet
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupt_main_greenlet()
# The thread is a greenlet here: Python calls the handler while it runs.
threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    threading.Event().wait(20)
    print("the interrupt is lost")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_interrupts_the_main_line_also_while_another_thread_runs() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_THREAD], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
