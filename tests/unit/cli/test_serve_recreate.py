"""`sparkrack serve recreate` of a unit, and its way back, with nodes that are shells here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from serving.programs import COORDINATOR
from sparkrack.engine import subcommands
from tests.unit.cli.serve_rack import ServeRack, answer
from tests.unit.roles.watch_tools import AMTOOL, silenced

GOOD, BAD = (f"sha256:{digit * 64}" for digit in "ab")
APPLY = """\
import os, pathlib, sys
top, bad, code = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
lock = (top / "n0/run/sparkrack/run.lock").read_text()
own = os.environ["SPARKRACK_RUN_LOCK"] == lock
(top / "n0/asked").open("a").write(f"{' '.join(sys.argv[4:])} lock={own}\\n")
for node in ("n0", "n1"):
    file = top / node / "etc/sparkrack/serve/qwen.args"
    file.write_text(file.read_text().replace("sha256:" + "a" * 64, bad))
    code or (top / node / "etc/sparkrack/serve/qwen.pending").unlink()
sys.exit(code)
"""
DOCKER = """\
#!/bin/sh
[ "$1 $2" = "image inspect" ] && ! grep -qs -- "$3" "$NODE/no-images"
"""
SYSTEMCTL = '#!/bin/sh\necho "$*" >> "$NODE/systemctl"\n'
READY = answer("ready")
DOWN = answer("ready", "stopping", "down", desired_state="down")
STARTED = answer("stopping", "down", "gating", "starting", "ready")
HELD = answer("down", "gating", "starting", "stopping", "held")


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeRack:
    made = ServeRack(tmp_path, monkeypatch)
    made.program("bin/docker", DOCKER)
    made.program("bin/systemctl", SYSTEMCTL)
    for node in ("n0", "n1"):
        etc = tmp_path / node / "etc"
        (etc / "systemd/system").mkdir(parents=True)
        (etc / "sparkrack/serve/qwen.args").write_text(f"--rm\n{GOOD}\nserve\n")
        ranks = '"node": "n0"\n"node": "n1"\n'
        (etc / "sparkrack/serve/qwen.json").write_text(ranks)
        (etc / "sparkrack/serve/qwen.secret").write_text("lease\n")
    return made


def applies(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch, image: str = BAD, code: int = 0, more: str = "true"
) -> None:
    """Let `apply` write this image on both nodes, run a script in the folder of the nodes, and end so."""
    script = f"import subprocess; subprocess.run({more!r}, shell=True, check=True, cwd=sys.argv[1])\nsys.exit(code)"
    words = (sys.executable, "-c", APPLY.replace("sys.exit(code)", script), str(rack.folder), image, str(code))
    monkeypatch.setattr(subcommands, "CALL", words)


def notes_the_lock(rack: ServeRack) -> None:
    """Let each question to a coordinator, and each desired state, note whose the lock of the rack is at that moment."""
    noted = 'cat "$NODES/n0/run/sparkrack/run.lock" >> "$NODES/locks" 2> /dev/null || echo free >> "$NODES/locks"'
    for node in ("n0", "n1", "n2"):
        coordinator = rack.folder / f"{node}{COORDINATOR}"
        coordinator.write_text(coordinator.read_text().replace("shift\n", f"shift\n{noted}\n", 1))


def locks(rack: ServeRack) -> set[str]:
    return {*(rack.folder / "locks").read_text().splitlines()}


def images(rack: ServeRack) -> list[str]:
    return [(rack.folder / n / "etc/sparkrack/serve/qwen.args").read_text().split()[1] for n in ("n0", "n1")]


def kept(rack: ServeRack, node: str = "n0") -> list[str]:
    return sorted(path.name for path in (rack.folder / node / "var/lib/sparkrack/serve/previous").glob("*"))


def test_a_good_image_is_kept_for_the_next_time(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    applies(rack, monkeypatch)
    rack.answers(READY, READY, DOWN, DOWN, {**STARTED, "generation": 8})
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 0, done.output
    applied = f"apply -y --rack {rack.file} --only serving --limit n0 --limit n1 lock=True"
    assert rack.asked() == ["qwen down", applied, "qwen up"]
    assert images(rack) == [BAD, BAD]
    assert [kept(rack, node) for node in ("n0", "n1")] == [["qwen.8.tar"], ["qwen.8.tar"]]
    assert not rack.lock.exists()


def test_a_unit_that_is_recreated_is_silent_until_then(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.file.write_text(f"{rack.file.read_text()}watch: {{server: n2}}\n")
    rack.program("bin/amtool", AMTOOL)
    applies(rack, monkeypatch)
    rack.answers(READY, READY, DOWN, DOWN, {**STARTED, "generation": 8})
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 0, done.output
    silence = 'recreate of unit qwen: unit=~"qwen"'
    assert silenced(rack.folder) == [silence, silence, "expire id-of-a-silence"]


def test_what_a_node_without_power_left_is_removed_when_files_are_kept(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rack.folder / "n1/var/lib/sparkrack/serve/previous"
    folder.mkdir(parents=True)
    (folder / ".qwen.x1Y2z3").write_text("half")
    (folder / ".qwen.two.x1Y2z3").write_text("of another unit")
    applies(rack, monkeypatch)
    rack.answers(READY, READY, DOWN, DOWN, {**STARTED, "generation": 8})
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 0, done.output
    assert kept(rack, "n1") == [".qwen.two.x1Y2z3", "qwen.8.tar"]


def test_an_image_that_does_not_serve_goes_back(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    applies(rack, monkeypatch)
    notes_the_lock(rack)
    rack.answers(READY, READY, DOWN, DOWN, HELD, HELD, STARTED)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1, done.output
    assert rack.asked()[2:] == ["qwen up", "qwen up"]
    (lock,) = locks(rack)
    assert "recreate of unit qwen on n0, n1" in lock
    assert images(rack) == [GOOD, GOOD]
    assert "qwen: goes back to its previous version, that of generation 7\n" in done.stdout
    lines = done.stderr.splitlines()
    assert (
        "qwen: does not serve as rack.yaml declares it (held: reason 4); its previous version, that of generation 7, "
        "serves again. `sparkrack drift` reports the difference until rack.yaml is corrected"
    ) in lines
    for node in ("n0", "n1"):
        assert kept(rack, node) == ["qwen.7.tar"]
        etc = rack.folder / node / "etc/sparkrack/serve"
        assert (etc / "qwen.secret").read_text() == "lease\n"
        assert not (etc / "qwen.pending").exists()
        assert (etc / "qwen.previous").read_text() == "7\n"
        calls = (rack.folder / node / "systemctl").read_text().splitlines()
        assert calls == ["daemon-reload", "restart sparkrack-serve-qwen-agent.service"]
    assert (rack.folder / "n0/var/lib/sparkrack/serve/previous/qwen.7.tar").stat().st_mode & 0o77 == 0


def test_a_previous_version_that_does_not_serve_either_gives_both_reasons(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    applies(rack, monkeypatch)
    second = answer("held", "gating", "held", failed_gates={"n1": "12 GiB are available"})
    rack.answers(READY, READY, DOWN, DOWN, HELD, HELD, second)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1
    assert (
        "(held: reason 4), and its previous version does not either (n1: 12 GiB are available); unit qwen is held"
        in (done.stderr)
    )


REFUSALS: dict[str, tuple[str, str]] = {
    "nothing kept": ("rm -r n1/var", "there is no previous version: n1 keeps none"),
    "other generations": ("cd n1/var/lib/sparkrack/serve/previous; mv qwen.7.tar qwen.6.tar",
                          "there is no previous version: the nodes keep different generations"),
    "no image": (f"echo {GOOD} > n1/no-images", f"n1 no longer has {GOOD}, the image of its previous version"),
    "same files": ("sed -i s/bbbb/aaaa/g n0/etc/sparkrack/serve/qwen.args n1/etc/sparkrack/serve/qwen.args",
                   "its files are those of its last good start"),
    "other nodes": (("for n in n0 n1; do sed -i s/n1/n2/ $n/etc/sparkrack/serve/qwen.json; "
                    "k=$n/var/lib/sparkrack/serve/previous/qwen.7.tar; tar -tPf $k > $n/names; "
                    "tar -cPf $k -T $n/names; done"), "its previous version was on other nodes: n0,n2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_there_is_no_way_back_without_a_whole_previous_version(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    script, expected = REFUSALS[case]
    applies(rack, monkeypatch, more=script)
    rack.answers(READY, READY, DOWN, DOWN, HELD)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1
    assert f"qwen: does not serve (held: reason 4), and does not go back: {expected}\n" in done.stderr
    assert rack.asked()[2:] == ["qwen up"]


def test_files_that_the_previous_version_had_not_are_removed(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    applies(rack, monkeypatch, more="touch n0/etc/sparkrack/serve/qwen.key n0/etc/sparkrack/serve/other.key")
    rack.answers(READY, READY, DOWN, DOWN, HELD, HELD, STARTED)
    assert rack.run("recreate", "qwen").exit_code == 1
    assert images(rack) == [GOOD, GOOD]
    assert [path.name for path in (rack.folder / "n0/etc/sparkrack/serve").glob("*.key")] == ["other.key"]


def test_files_of_a_failed_apply_go_back_too(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    applies(rack, monkeypatch, code=1)
    rack.answers(READY, READY, DOWN, DOWN, STARTED)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1
    assert images(rack) == [GOOD, GOOD]
    assert "rack.yaml declares it (apply failed (exit 1); unit qwen is down); its previous version" in done.stderr
    assert rack.asked()[2:] == ["qwen up"]


def test_an_apply_that_fails_before_it_writes_anything_leaves_no_unit_down(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are those of its last good start. They are put back all the same: the mark of the change is there."""
    applies(rack, monkeypatch, image=GOOD, code=1)
    rack.answers(READY, READY, DOWN, DOWN, STARTED)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1
    assert "its previous version, that of generation 7, serves again" in done.stderr
    assert rack.asked()[2:] == ["qwen up"]
    assert not any((rack.folder / node / "etc/sparkrack/serve/qwen.pending").exists() for node in ("n0", "n1"))


def test_the_end_of_the_wait_puts_nothing_back(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator continues, with the new files."""
    applies(rack, monkeypatch)
    rack.answers(READY, READY, DOWN, DOWN, answer("down", "gating", "starting"))
    done = rack.run("recreate", "qwen", "--timeout", "1")
    assert done.exit_code == 1
    assert "qwen: not ready within 1 s: unit qwen is starting, and its coordinator continues\n" in done.stderr
    assert images(rack) == [BAD, BAD]
    assert rack.asked()[2:] == ["qwen up"]


def test_a_unit_that_does_not_serve_keeps_what_was_kept(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a killed run: the unit is held with the bad image, and what is kept is the good one."""
    applies(rack, monkeypatch)
    rack.answers(READY, READY, DOWN, DOWN, HELD, HELD, STARTED)
    assert rack.run("recreate", "qwen").exit_code == 1
    for node in ("n0", "n1"):
        file = rack.folder / node / "etc/sparkrack/serve/qwen.args"
        file.write_text(file.read_text().replace(GOOD, BAD))
    for file in (rack.folder / "n0").glob("*.status"):
        file.unlink()
    rack.answers(HELD, HELD, DOWN, DOWN, HELD, HELD, STARTED)
    assert rack.run("recreate", "qwen").exit_code == 1
    assert images(rack) == [GOOD, GOOD]


def test_it_goes_back_to_the_latest_version_that_all_nodes_keep(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are there when a run was killed before it removed the older one."""
    applies(rack, monkeypatch)
    rack.answers(READY, READY, DOWN, DOWN, HELD, HELD, HELD)
    assert rack.run("recreate", "qwen").exit_code == 1
    for node in ("n0", "n1"):
        folder = rack.folder / node / "var/lib/sparkrack/serve/previous"
        shutil.copy(folder / "qwen.7.tar", folder / "qwen.3.tar")
    shutil.copy(folder / "qwen.7.tar", folder / "qwen.9.tar")  # on one node only
    for file in (rack.folder / "n0").glob("*.status"):
        file.unlink()
    rack.answers(HELD, HELD, DOWN, DOWN, HELD, HELD, STARTED)
    done = rack.run("recreate", "qwen")
    assert "its previous version, that of generation 7, serves again" in done.stderr


def test_no_node_starts_while_the_files_of_one_are_not_put_back(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    applies(rack, monkeypatch)
    rack.program("bin/systemctl", "#!/bin/sh\necho systemd is broken >&2\nexit 1\n")
    rack.answers(READY, READY, DOWN, DOWN, HELD)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1
    assert "and does not go back: n0: systemd is broken\n" in done.stderr
    assert all((rack.folder / node / "etc/sparkrack/serve/qwen.pending").exists() for node in ("n0", "n1"))


def test_files_that_cannot_be_kept_change_nothing(rack: ServeRack) -> None:
    (rack.folder / "n1/var").touch()
    rack.answers(READY)
    done = rack.run("recreate", "qwen")
    assert done.exit_code == 1
    assert "qwen: its files cannot be kept for a way back: n1: " in done.stderr
    assert "; nothing was changed\n" in done.stderr
    assert rack.asked() == []
