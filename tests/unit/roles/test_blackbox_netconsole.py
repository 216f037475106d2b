"""Messages of kernels on their way to another node: the script of the sender, and the receiver with real UDP."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import roles.blackbox
from core.ops import host_facts
from roles.blackbox import desired, netconsole, stream_facts
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import calls, run, stand_in, write

LIMIT = 60
"""Seconds to wait: the machine may be busy."""
FILES = Path(roles.blackbox.__file__).parent / "files"
TARGET = "sys/kernel/config/netconsole/sparkrack"
FIELDS = ("dev_name", "local_port", "local_ip", "remote_port", "remote_ip", "remote_mac", "extended", "enabled")
MAC = "02:00:00:00:00:12"
ARMED = ["enP7s7", "6665", "10.77.0.11", "6666", "10.77.0.12", MAC, "1", "1"]


def node(root: Path, level: str = "4", route: str = "10.77.0.12 from 10.77.0.11 dev enP7s7", hop: str = "") -> Path:
    """A node with a netconsole that has no target yet: configfs gives a new one these files."""
    for name in FIELDS:
        write(root, f"/{TARGET}/{name}", "0\n")
    write(root, "/proc/sys/kernel/printk", f"{level}\t4\t1\t7\n")
    stand_in(
        root,
        "ip",
        f"""case "$*" in
*address*) echo '2: enP7s7    inet 10.77.0.11/24 brd 10.77.0.255 scope global enP7s7' ;;
*route*) echo '{route}' ;;
*neighbour*" {hop or "10.77.0.12"} "*) echo '{hop or "10.77.0.12"} lladdr {MAC} REACHABLE' ;;
esac""",
    )
    stand_in(root, "ping", "exit 1")
    return root


def armed(root: Path) -> list[str]:
    return [(root / TARGET / name).read_text().strip() for name in FIELDS]


def script(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    text = (FILES / "netconsole-target.sh").read_text().replace("/dev/kmsg", f"{root}/kmsg")
    return run(f"set -- {' '.join(words)}\n{text}", root)


def test_the_kernel_sends_over_the_management_interface(tmp_path: Path) -> None:
    root = node(tmp_path)
    done = script(root, "10.77.0.11", "10.77.0.12")
    assert done.returncode == 0, done.stderr
    assert armed(root) == ARMED
    assert (root / "kmsg").read_text() == "<4>sparkrack-netconsole-mark\n"
    assert (root / "proc/sys/kernel/printk").read_text().split()[0] == "5"
    assert "ip -o -4 route get 10.77.0.12 from 10.77.0.11 oif enP7s7" in calls(root)


def test_a_second_time_nothing_is_written_but_the_mark(tmp_path: Path) -> None:
    root = node(tmp_path, level="7")
    assert script(root, "10.77.0.11", "10.77.0.12").returncode == 0
    for name in FIELDS:
        (root / TARGET / name).chmod(0o444)
    before = [(root / TARGET / name).stat().st_mtime_ns for name in FIELDS]
    done = script(root, "10.77.0.11", "10.77.0.12")
    assert (done.returncode, done.stdout) == (0, "")
    assert [(root / TARGET / name).stat().st_mtime_ns for name in FIELDS] == before
    assert (root / "proc/sys/kernel/printk").read_text().split()[0] == "7"


def test_a_target_that_the_kernel_disabled_is_armed_again(tmp_path: Path) -> None:
    """The kernel does so when the interface disappears; all other values stay."""
    root = node(tmp_path)
    assert script(root, "10.77.0.11", "10.77.0.12").returncode == 0
    write(root, f"/{TARGET}/enabled", "0\n")
    assert script(root, "10.77.0.11", "10.77.0.12").returncode == 0
    assert armed(root) == ARMED


def test_another_card_of_the_receiver_is_noticed(tmp_path: Path) -> None:
    root = node(tmp_path)
    assert script(root, "10.77.0.11", "10.77.0.12").returncode == 0
    write(root, f"/{TARGET}/remote_mac", "02:00:00:00:00:99\n")
    assert script(root, "10.77.0.11", "10.77.0.12").returncode == 0
    assert armed(root) == ARMED


def test_a_routed_receiver_is_reached_by_its_gateway(tmp_path: Path) -> None:
    root = node(tmp_path, route="10.78.0.9 from 10.77.0.11 via 10.77.0.1 dev enP7s7", hop="10.77.0.1")
    done = script(root, "10.77.0.11", "10.78.0.9")
    assert done.returncode == 0, done.stderr
    assert armed(root)[4:6] == ["10.78.0.9", MAC]


def test_a_receiver_without_a_neighbour_fails(tmp_path: Path) -> None:
    root = node(tmp_path, hop="10.77.0.99")
    done = script(root, "10.77.0.11", "10.77.0.12")
    assert done.returncode == 1
    assert "10.77.0.12 has no address in the neighbour table of enP7s7" in done.stderr
    assert not (root / "kmsg").exists()


def test_a_kernel_without_netconsole_fails(tmp_path: Path) -> None:
    root = node(tmp_path)
    (root / "sys/kernel/config/netconsole").rename(root / "gone")
    done = script(root, "10.77.0.11", "10.77.0.12")
    assert done.returncode == 1
    assert "netconsole is not loaded, or not dynamic (CONFIG_NETCONSOLE_DYNAMIC)" in done.stderr


@pytest.mark.parametrize(
    ("config", "dynamic"),
    [("CONFIG_NETCONSOLE_DYNAMIC=y\n", "yes"), ("CONFIG_NETCONSOLE=m\n", "no"), (None, "unknown")],
)
def test_the_state_of_a_node(tmp_path: Path, config: str | None, dynamic: str) -> None:
    """`unknown`: neither the kernel's configuration nor netconsole is there."""
    command = (
        host_facts._registered["blackbox"].commands[stream_facts.NETCONSOLE].replace("/boot/", f"{tmp_path}/boot/")
    )
    root = node(tmp_path)
    (root / "sys/kernel/config/netconsole").rename(root / "gone")
    stand_in(root, "uname", "echo 6.17")
    if config is not None:
        write(root, "/boot/config-6.17", config)
    write(root, "/drivers/r8127/x")
    (root / "sys/class/net/enP7s7/device").mkdir(parents=True)
    (root / "sys/class/net/enP7s7/device/driver").symlink_to(root / "drivers/r8127")
    done = run(command, root)
    assert done.returncode == 0, done.stderr
    live = desired.parse_live(done.stdout)
    assert live["netconsole", "dynamic"] == dynamic
    assert live["netconsole", "interfaces"] == "10.77.0.11=enP7s7=r8127"
    assert live["netconsole", "target"] == "absent"
    (root / "gone").rename(root / "sys/kernel/config/netconsole")
    assert script(root, "10.77.0.11", "10.77.0.12").returncode == 0
    live = desired.parse_live(run(command, root).stdout)
    rack = loaded(changed(SWITCH, ("rack: two\n", "rack: two\nblackbox: {netconsole: plain}\n")))
    assert netconsole.blockers(live, rack.nodes["spark1"]) == ()
    assert netconsole.armed(live, rack.nodes["spark1"], rack.nodes["spark2"])
    assert not netconsole.armed({**live, ("netconsole", "level"): "4"}, rack.nodes["spark1"], rack.nodes["spark2"])


def wait(done: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Receiver:
    """The receiver on loopback, and two addresses that send to it."""

    def __init__(self, root: Path, stack: ExitStack, limit: str = "1") -> None:
        self.folder = root / "received"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        log = stack.enter_context((root / "log").open("w"))
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(FILES / "netconsole_receiver.py"),
                f"--listen=127.0.0.1:{self.port}",
                "--sender=spark1=127.0.0.1",
                "--sender=spark2=127.0.0.2",
                f"--folder={self.folder}",
                f"--limit={limit}",
            ],
            stdout=log,
            stderr=log,
        )
        stack.callback(self.process.wait, LIMIT)
        stack.callback(self.process.kill)
        wait(lambda: "receives" in (root / "log").read_text(), "it does not start")
        self.root = root

    def send(self, packet: bytes, source: str = "127.0.0.1") -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((source, 0))
            sender.sendto(packet, ("127.0.0.1", self.port))

    def lines(self, name: str = "spark1") -> list[str]:
        file = self.folder / f"{name}.log"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with ExitStack() as stack:
        yield Receiver(tmp_path, stack)


def test_each_sender_has_its_own_file(receiver: Receiver) -> None:
    receiver.send(b"4,10,1000,-;hello of one\n DEVICE=x\n")
    receiver.send(b"4,77,1000,-;hello of two\n", "127.0.0.2")
    wait(lambda: len(receiver.lines()) == 2 and len(receiver.lines("spark2")) == 1, "nothing is received")
    stamp = r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}\+00:00 "
    assert re.fullmatch(stamp + "4,10,1000,-;hello of one", receiver.lines()[0])
    assert re.fullmatch(stamp + " DEVICE=x", receiver.lines()[1])


def test_a_stranger_is_dropped(receiver: Receiver, tmp_path: Path) -> None:
    receiver.send(b"4,1,1,-;forged\n", "127.0.0.3")
    receiver.send(b"4,1,1,-;true\n")
    wait(receiver.lines, "nothing is received")
    assert [line.partition(";")[2] for line in receiver.lines()] == ["true"]
    assert receiver.lines("spark2") == []
    assert "127.0.0.3: is not a declared sender; dropped" in (tmp_path / "log").read_text()


def test_a_gap_is_shown(receiver: Receiver) -> None:
    for number in (10, 11, 14, 3):  # the kernel begins again after a boot
        receiver.send(f"4,{number},1,-;m\n".encode())
    receiver.send(b"4,9,1,-,ncfrag=0/33;part")
    receiver.send(b"4,4,1,-;m\n")
    wait(lambda: len(receiver.lines()) == 7, "not all are received")
    assert [line.split(" ", 1)[1] for line in receiver.lines() if "missing" in line] == [
        "sparkrack: 2 messages are missing"
    ]


def test_what_is_not_a_text_does_no_harm(receiver: Receiver) -> None:
    receiver.send(b"\x1b[2J\xff\x00 4,1\n")
    receiver.send(b"")
    receiver.send(b"4,1,1,-;after\n")
    wait(lambda: receiver.lines() and "after" in receiver.lines()[-1], "it has ended")
    assert receiver.lines()[0].endswith(" ?[2J?? 4,1")


def test_a_number_that_no_kernel_sends_is_text(receiver: Receiver) -> None:
    """Python refuses to convert a number of more than 4300 digits."""
    receiver.send(b"4," + b"9" * 5000 + b",1,-;forged\n")
    receiver.send(b"4,1,1,-;after\n")
    wait(lambda: receiver.lines() and "after" in receiver.lines()[-1], "it has ended")
    assert "missing" not in "".join(receiver.lines())


def test_an_address_that_the_node_does_not_have_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(FILES / "netconsole_receiver.py"), "--listen=192.0.2.1:6666"]
    command += ["--sender=spark1=127.0.0.1", f"--folder={tmp_path}", "--limit=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (1, "192.0.2.1:6666: Cannot assign requested address\n")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-I", str(FILES / "netconsole_receiver.py"), "--listen=127.0.0.1:0"]
    command += ["--sender=spark1=127.0.0.1", f"--folder={tmp_path}/file/received", "--limit=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path}/file/received: Not a directory\n")


def test_a_file_that_cannot_be_written_ends_the_receiver_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "received").mkdir()
    (tmp_path / "received/spark1.log").symlink_to("/dev/full")
    with ExitStack() as stack:
        receiver = Receiver(tmp_path, stack)
        receiver.send(b"4,1,1,-;lost\n")
        assert receiver.process.wait(LIMIT) == 1
    file = receiver.folder / "spark1.log"
    assert f"{file}: [Errno 28] No space left on device" in (tmp_path / "log").read_text()


def test_a_file_that_is_full_is_kept_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        receiver = Receiver(tmp_path, stack)
        old = receiver.folder / "spark1.log.1"
        for number in range(80):
            receiver.send(f"4,{number},1,-;{'x' * 16000}\n".encode())
            if number % 10 == 9:  # UDP drops what the receiver has not read
                want = f"4,{number},1"
                wait(lambda want=want: want in old_and_new(old), f"{want} is not received")  # type: ignore[misc]
        assert 500_000 < old.stat().st_size < 600_000
        assert (receiver.folder / "spark1.log").stat().st_size < 600_000
        assert len(list(receiver.folder.glob("spark1*"))) == 2


def old_and_new(old: Path) -> str:
    """The text of both files of a sender."""
    files = (old, old.with_suffix(""))
    return "".join(file.read_text() for file in files if file.exists())


def test_a_panic_is_on_the_disk_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync is called for it, and not for every line."""
    names: dict[str, object] = {"__name__": "netconsole_receiver"}
    program = FILES / "netconsole_receiver.py"
    exec(compile(program.read_text(), str(program), "exec"), names)  # noqa: S102
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    log = names["SenderLog"](tmp_path, "spark1", 1 << 20)  # type: ignore[operator]
    for text, count in (
        (b"usb 1-1: new device", 0),
        (b"Kernel panic - not syncing", 1),
        (b"watchdog: BUG: soft lockup", 2),
    ):
        log.write(b"4,1,1,-;" + text + b"\n")
        assert len(synced) == count, text
    log.file.close()
