"""Installing packages, run by a real shell: locks are waited for and never taken, nothing is guessed or removed."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.ops import apt
from tests.unit.ops.shells import calls, rooted, run, stand_in

LOCKS = ["var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"]
MADISON = """\
printf '%s\\n' "$3" >> ROOT/asked
[ ! -e ROOT/updated ] || [ "$3" != new ] || echo "  new | 2.0-1 | http://x ./ Packages"
case "$3" in
tool) echo "      tool | 580.173.02-0ubuntu1 | http://x ./ Packages"
echo "      tool | 580.1590-1 | http://x ./ Packages"; echo "      tool | 580.159.03-0ubuntu1 | http://x ./ Packages"
echo "      tool | 580.159.03-0ubuntu1 | http://y ./ Packages";;
plain) echo " plain | 1:1.0 | http://x ./ Packages";;
esac"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose packages are in order, with the kernel's own list of locks."""
    for lock in LOCKS:
        (tmp_path / lock).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / lock).touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "proc").symlink_to("/proc")
    stand_in(tmp_path, "dpkg")
    stand_in(tmp_path, "apt-cache", MADISON.replace("ROOT", str(tmp_path)))
    stand_in(tmp_path, "apt-get", f'for w; do [ "$w" != update ] || touch {tmp_path}/updated; done')
    return tmp_path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def install(node: Path, *words: str, downgrade: bool = False, held: bool = False) -> subprocess.CompletedProcess[str]:
    return run(apt.install(*words, downgrade=downgrade, held=held, seconds=1), node)


def gets(node: Path) -> list[str]:
    return [call for call in calls(node) if call.startswith("apt-get")]


OPTIONS = "apt-get -o DPkg::Lock::Timeout=1 -o Dpkg::Options::=--force-confold -q"
NOT = "is not in the configured repositories, which have"
INSTALL = f"{OPTIONS} -y --no-install-recommends --no-remove"


def test_one_package(node: Path) -> None:
    done = install(node, "plain")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert gets(node) == [f"{INSTALL} install -- plain"]
    assert list((node / "run").iterdir()) == []


@pytest.mark.parametrize(
    ("word", "chosen"),
    [
        ("tool=580.159*", "tool=580.159.03-0ubuntu1"),
        ("tool=580.159.03-0ubuntu1", "tool=580.159.03-0ubuntu1"),
        ("tool=580*", "tool=580.173.02-0ubuntu1"),
        ("tool=580.1590*", "tool=580.1590-1"),
        ("plain=1:1.0", "plain=1:1.0"),
    ],
)
def test_versions(node: Path, word: str, chosen: str) -> None:
    assert install(node, word).returncode == 0
    assert gets(node) == [f"{INSTALL} install -- {chosen}"]


def test_what_is_allowed_is_said(node: Path) -> None:
    assert install(node, "plain", "tool=580*", downgrade=True, held=True).returncode == 0
    flags = "--allow-downgrades --allow-change-held-packages"
    assert gets(node) == [f"{INSTALL} {flags} install -- plain tool=580.173.02-0ubuntu1"]


def test_the_lists_are_updated_once_if_they_lack_something(node: Path) -> None:
    assert install(node, "plain", "new=2.0*").returncode == 0
    assert gets(node) == [f"{OPTIONS} update", f"{INSTALL} install -- plain new=2.0-1"]


def test_what_is_nowhere_is_named(node: Path) -> None:
    done = install(node, "tool=580.15*", "plain=2", "gone")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"tool 580.15 {NOT} 580.159.03-0ubuntu1 580.1590-1 580.173.02-0ubuntu1",
        f"plain 2 {NOT} 1:1.0",
        f"gone {NOT} none",
    ]
    assert gets(node) == [f"{OPTIONS} update"]


def test_why_an_update_did_not_help_is_reported(node: Path) -> None:
    stand_in(node, "apt-get", "echo 'W: Failed to fetch http://x  Connection refused'")
    done = install(node, "gone")
    assert done.stderr.splitlines()[1:] == ["W: Failed to fetch http://x  Connection refused"]


def test_lists_that_are_too_old_are_updated(node: Path) -> None:
    """With apt's timers closed they are from the last run: the file that they name may be gone."""
    fails = 'echo "E: Failed to fetch x  404"; exit 100'
    updated = f"{node}/updated"
    stand_in(node, "apt-get", f'case "$*" in *update) touch {updated};; *) [ -e {updated} ] || {{ {fails}; }}; esac')
    assert install(node, "plain").returncode == 0
    assert [call.rsplit(" ", 1)[-1] for call in gets(node)] == ["plain", "update", "plain"]


def test_a_failure_is_reported_and_not_tried_again(node: Path) -> None:
    stand_in(node, "apt-get", "echo 'E: Packages need to be removed but remove is disabled.'; exit 100")
    done = install(node, "plain")
    assert (done.returncode, done.stderr) == (1, "E: Packages need to be removed but remove is disabled.\n")
    assert len(gets(node)) == 1
    assert list((node / "run").iterdir()) == []


def test_an_interrupted_dpkg_is_finished_first(node: Path) -> None:
    stand_in(node, "dpkg", '[ "$1" != --audit ] || echo "half-configured: x"; [ "$1" = --audit ] || exit 1')
    assert install(node, "plain").returncode == 0
    assert [call.partition(" ")[0] for call in calls(node)] == ["dpkg", "dpkg", "apt-cache", "apt-get"]
    assert calls(node)[1] == "dpkg --force-confold --configure -a"


@pytest.mark.parametrize(("lock", "seconds"), [(LOCKS[0], 1), *((lock, 0) for lock in LOCKS[1:])])
def test_a_lock_is_waited_for_and_its_holder_named(node: Path, lock: str, seconds: int) -> None:
    comm = Path("/proc/self/comm").read_text().strip()
    with locked(node / lock):
        done = run(apt.install("plain", seconds=seconds), node)
    reported = f"dpkg has been locked for {seconds} s by {comm} (pid {os.getpid()}); nothing was changed\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", reported)
    assert calls(node) == []
    assert (node / lock).exists()


def test_a_lock_that_is_given_back_in_time(node: Path) -> None:
    path = str(node / LOCKS[0])
    held = f"import fcntl,time; f=open({path!r},'r+'); fcntl.lockf(f,2); print(flush=True); time.sleep(1.5)"
    with subprocess.Popen(["python3", "-c", held], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = run(apt.install("plain", seconds=20), node)
        assert done.returncode == 0, done.stderr
        assert holder.wait() == 0


def test_another_lock_is_not_a_lock_of_dpkg(node: Path) -> None:
    """The number of an inode says nothing without its file system."""
    (node / "proc").unlink()
    (node / "proc/9/fd").mkdir(parents=True)
    (node / "proc/9/comm").write_text("other\n")
    (node / "proc/9/fd/3").symlink_to("/run/other")
    inode = (node / LOCKS[0]).stat().st_ino
    (node / "proc/locks").write_text(
        f"1: POSIX  ADVISORY  WRITE 9 00:19:{inode} 0 EOF\n1: -> POSIX  ADVISORY  WRITE 9\n"
    )
    assert install(node, "plain").returncode == 0
    (node / "proc/9/fd/4").symlink_to(node / LOCKS[0])
    assert "locked for 1 s by other (pid 9)" in install(node, "plain").stderr


@pytest.mark.parametrize(
    "word",
    ["", "-y", "a", "a b", "x=1;reboot", "x=$(id)", "x*", "x-", "X1", "xx=", "xx=*", "xx=1 2", "xx=1**", "xx\n", "x_y"],
)
def test_what_is_not_a_package_is_never_sent(word: str) -> None:
    with pytest.raises(ValueError, match="no package and version"):
        apt.install(word)


def test_hostile_answers_are_not_run(node: Path) -> None:
    stand_in(node, "apt-cache", f"echo ' plain | 1$(touch${{IFS}}{node}/x);* | y'")
    assert install(node, "plain=1*").returncode == 0
    assert not (node / "x").exists()
    assert gets(node) == [f"{INSTALL} install -- plain=1$(touch${{IFS}}{node}/x);*"]


@pytest.mark.parametrize(
    ("status", "journal", "reported"),
    [
        ("Package: a\nStatus: install ok installed\nVersion: 1\n", [], False),
        ("Package: a\nStatus: hold ok half-configured\nVersion: 1\n", [], True),
        ("Package: a\nStatus: install reinstreq half-installed\n", [], True),
        ("Package: a\nStatus: deinstall ok config-files\n", [], False),
        ("Status: install ok installed\n", ["0001"], True),
        ("Status: install ok installed\n", ["tmp.i"], False),
    ],
)
def test_what_was_interrupted_shows(node: Path, status: str, journal: list[str], reported: bool) -> None:
    (node / "var/lib/dpkg/status").write_text(status)
    (node / "var/lib/dpkg/updates").mkdir()
    for name in journal:
        (node / "var/lib/dpkg/updates" / name).touch()
    done = run(apt.INTERRUPTED, node)
    assert (done.returncode, bool(done.stdout)) == (0, reported)


def test_without_a_status_it_is_unknown(node: Path) -> None:
    assert run(apt.INTERRUPTED, node).returncode == 9


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    text = apt.install("plain").get_raw_value() + apt.INTERRUPTED
    for top in ("/var/", "/run/", "/proc/"):
        assert top not in rooted(text, Path("/R")).replace("/R" + top, "")


@pytest.mark.parametrize("word", ["", "a b", "vim=1", "vim;reboot", "-vim"])
def test_what_is_not_the_name_of_a_package_is_not_put_on_hold(word: str) -> None:
    with pytest.raises(ValueError, match=r"^no package: ") as caught:
        apt.hold("docker-ce", word)
    assert str(caught.value) == f"no package: {word!r}"
    assert apt.hold("docker-ce", "vim").get_raw_value().endswith("\napt-mark hold docker-ce vim > /dev/null")
