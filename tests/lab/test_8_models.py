"""Models on three nodes: a folder of the operator's machine, over the first node to the others; and what goes wrong."""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

from core.model import model_lock
from tests.lab.conftest import NODES
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=2)

FILES, SIZE = 12, 2 << 20
"""22 MB: a virtual node hashes and encrypts some MB a second."""
NAME = "small"
STORE = f"/srv/models/{NAME}"
KILLED = str(Path(__file__).with_name("kill_after.py"))
BIG = "model-00007-of-00012.safetensors"


@pytest.fixture(scope="module")
def declared(rack: VirtualRack) -> Iterator[Path]:
    """The rack file with a model, whose folder is on this machine."""
    folder = rack.folder / "model-source"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "small"}\n')
    for number in range(1, FILES):
        with (folder / f"model-{number:05}-of-{FILES:05}.safetensors").open("wb") as file:
            for place in range(SIZE >> 20):
                file.write(hashlib.sha256(b"%d %d" % (number, place)).digest() * ((1 << 20) // 32))
    path = rack.paths.rack.with_name("models.yaml")
    path.write_text(f"{rack.paths.rack.read_text()}\nmodels: {{{NAME}: {{path: {folder}}}}}\n")
    try:
        yield path
    finally:
        for node in NODES:
            rack.ssh(node, f"systemctl stop 'sparkrack-model-*'; rm -rf {STORE} /srv/filler", check=False)
        shutil.rmtree(folder)
        for kept in (path, path.with_name("models.lock.json")):
            kept.unlink(missing_ok=True)


def deploy(rack: VirtualRack, declared: Path, check: bool = True) -> str:
    done = rack.deploy("-y", rack=declared, roles=("models",), check=check)
    return done.stdout + done.stderr


def changes_nothing(rack: VirtualRack, declared: Path) -> bool:
    return bool(re.search(r"Grand total +(\d+) +- +- +\1 *$", deploy(rack, declared), re.MULTILINE))


def hashes(rack: VirtualRack, node: str) -> dict[str, str]:
    """The sha256 of each file of the model on a node, by path."""
    script = f"cd {STORE} && find . -name .sparkrack -prune -o -type f -print0 | xargs -0 sha256sum"
    rows = (line.split("  ./") for line in rack.ssh(node, script).splitlines())
    return {path: sha256 for sha256, path in rows}


def all_have(rack: VirtualRack, declared: Path) -> bool:
    """Every node has the files of the lock file, and none that is not complete."""
    record = model_lock.read(declared.with_name("models.lock.json"))[NAME]
    wanted = {file.path: file.sha256 for file in record.files}
    assert len(wanted) == FILES
    return all(
        hashes(rack, node) == wanted and not rack.ssh(node, f"ls {STORE}/.sparkrack/parts").split() for node in NODES
    )


def remove(rack: VirtualRack, *nodes: str) -> None:
    for node in nodes:
        rack.ssh(node, f"rm -rf {STORE}")


def test_from_the_operators_machine_to_all_nodes(rack: VirtualRack, declared: Path) -> None:
    remove(rack, *NODES)
    reported = deploy(rack, declared)
    assert all_have(rack, declared)
    assert "small: recorded the folder" in reported
    assert len(re.findall(r"small: from spark\d \(fabric\)", reported)) == 2, reported


def test_a_second_run_changes_nothing(rack: VirtualRack, declared: Path) -> None:
    before = [rack.ssh(node, f"stat -c '%n %y %z' {STORE}/*; cat {STORE}/.sparkrack/record") for node in NODES]
    assert changes_nothing(rack, declared)
    assert [rack.ssh(node, f"stat -c '%n %y %z' {STORE}/*; cat {STORE}/.sparkrack/record") for node in NODES] == before
    rack.verify("--only", "models", rack=declared)


@pytest.mark.soak
def test_runs_that_are_killed_after_each_command(rack: VirtualRack, declared: Path) -> None:
    """The first starts the check on the first node, the second the one after the files were sent, then the copies."""
    remove(rack, *NODES)
    killed = 0
    for after in range(1, 10):
        done = rack.run(
            *("sparkrack", "lab", "run", "--", "env", f"KILL_AFTER={after}", f"RACK={declared}"),
            *("pyinfra", "inventory.py", KILLED, "-y"),
            check=False,
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        killed += 1
    assert killed >= 1
    deploy(rack, declared)
    assert all_have(rack, declared)
    assert changes_nothing(rack, declared)


def test_a_transfer_that_is_killed_continues(rack: VirtualRack, declared: Path) -> None:
    """On one node, in the middle of the copy; what it has is not copied again."""
    remove(rack, "spark3")
    some = (
        f"for _ in $(seq 2000); do [ $(du -sb {STORE}/.sparkrack/parts 2>/dev/null | cut -f1) -gt 2000000 ] && break; "
    )
    kill = "sleep 0.1; done; systemctl kill -s KILL 'sparkrack-model-*'"
    rack.ssh("spark3", f"systemd-run --quiet --collect --unit=lab-kill sh -c {quote(some + kill)}")
    with rack.slow_fabric("spark1", "spark2"):  # or the copy could end before the kill
        reported = deploy(rack, declared, check=False)
    assert "could not give it: it was ended from outside" in reported, reported
    deploy(rack, declared)
    assert all_have(rack, declared)


def test_a_flipped_byte_is_found_and_replaced(rack: VirtualRack, declared: Path) -> None:
    flip = f"printf y | dd of={STORE}/{BIG} bs=1 seek=12345 conv=notrunc status=none"
    rack.ssh("spark2", flip)
    assert "not verified -> verified" in deploy_dry(rack, declared)
    deploy(rack, declared)
    assert all_have(rack, declared)
    # The same with the old time: only reading it shows it.
    rack.ssh("spark2", f"touch -r {STORE}/{BIG} /run/when; {flip}; touch -r /run/when {STORE}/{BIG}")
    assert changes_nothing(rack, declared)
    done = rack.verify("--only", "models", rack=declared, check=False)
    assert done.returncode == 2, done.stdout
    assert f"spark2: {STORE}/{BIG} has the sha256" in done.stdout
    rack.ssh("spark2", f"touch {STORE}/{BIG}")
    deploy(rack, declared)
    assert all_have(rack, declared)


def deploy_dry(rack: VirtualRack, declared: Path) -> str:
    done = rack.deploy("--dry", "--diff", rack=declared, roles=("models",))
    return done.stdout + done.stderr


def test_a_full_disk_is_refused_before_the_first_byte(rack: VirtualRack, declared: Path) -> None:
    remove(rack, "spark3")
    free = int(rack.ssh("spark3", "df -B1 --output=avail /srv | tail -n 1"))
    rack.ssh("spark3", f"fallocate -l {free - (1 << 30)} /srv/filler")
    reported = deploy(rack, declared, check=False)
    assert re.search(r"/srv/models has \S+ [GM]B free, the models it lacks need", reported), reported
    assert rack.ssh("spark3", f"ls {STORE} 2>/dev/null || echo none").split() == ["none"]
    rack.ssh("spark3", "rm /srv/filler")
    deploy(rack, declared)
    assert all_have(rack, declared)


def test_a_model_that_is_not_declared_any_more_stays(rack: VirtualRack, declared: Path) -> None:
    rack.ssh("spark1", f"echo mine > {STORE}/notes.txt")
    assert f"{STORE}: no files of the model: notes.txt" in deploy(rack, declared)
    rack.deploy("-y", roles=("models",))
    assert "notes.txt" in rack.ssh("spark1", f"ls {STORE}").split()
    rack.ssh("spark1", f"rm {STORE}/notes.txt")
    assert all_have(rack, declared)
