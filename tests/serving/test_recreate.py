"""`serve recreate` with real keeper, tethers and scripts of the nodes: a bad image goes back.

`apply` is a stand-in: it writes the environment of the container on each node and restarts keeper and tether, as the
role does. The engine reads that environment, so a bad one is an image that ends.
"""

from __future__ import annotations

import stat
import subprocess
import sys

import pytest

from roles.serving.programs import FOLDER
from tests.serving.serving_rack import ServingNode, ServingRack
from tests.serving.test_serve_verbs import VerbRack

SSH = """\
#!/bin/sh
export NODE="$NODES/$3" PATH="$NODES/tools:$PATH"
sed -u "s#/etc/sparkrack/serve#$NODE/etc#g; s#/etc/systemd/system#$NODE/etc#g; s#{folder}#$NODES/programs#g
s#/var/lib/sparkrack/serve#$NODE/state#g; s#/run/sparkrack#$NODE/run#g" |
    exec ip netns exec "$PREFIX$(cat "$NODE/rank")" sh
"""
SYSTEMCTL = """\
#!/bin/sh
[ "$1" = restart ] || exit 0
kind=${2%.service}; kind=${kind##*-}
[ ! -e "$NODE/$kind.pid" ] || kill "$(cat "$NODE/$kind.pid")"
while kill -0 "$(cat "$NODE/$kind.pid")" 2> /dev/null && ! grep -q ") Z" "/proc/$(cat "$NODE/$kind.pid")/stat"; do
    sleep 0.05
done
setsid sh "$NODE/$kind.sh" >> "$NODE/log" 2>&1 < /dev/null &
echo $! > "$NODE/$kind.pid"
"""
APPLY = """\
import os, pathlib, subprocess, sys
top, prefix, content = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
for number, node in enumerate(("spark1", "spark2")):
    (top / node / "etc/toy.env").write_text(content)
    (top / "applied").touch()
    for kind in ("tether", "keeper")[:2 - number]:
        words = ["ip", "netns", "exec", f"{prefix}{number}", str(top / "tools/systemctl")]
        subprocess.run([*words, "restart", f"-{kind}.service"], check=True, env={**os.environ, "NODE": str(top / node)})
"""
RUN = """\
import sys
from sparkrack.cli import serve_run
from sparkrack.cli.main import sparkrack
from sparkrack.rebuild import subcommands
serve_run.POLL_SECONDS = 0.2
subcommands.CALL = tuple(sys.argv[1:7])
sparkrack(sys.argv[7:])
"""
GOOD, ENDS = "# good\n", "# bad\nexit 1\n"


class RecreateRack(VerbRack):
    """The rack of the verbs, whose unit has files that `recreate` keeps and puts back."""

    def __init__(self, rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(rack, monkeypatch)
        (rack.folder / "bin/ssh").write_text(SSH.format(folder=FOLDER))
        (rack.folder / "tools").mkdir()
        for name, content in {"systemctl": SYSTEMCTL, "docker": "#!/bin/sh\nexit 0\n"}.items():
            (rack.folder / "tools" / name).write_text(content)
            (rack.folder / "tools" / name).chmod(stat.S_IRWXU)
        for node in rack.nodes:
            self._files(node)

    def _files(self, node: ServingNode) -> None:
        etc = node.folder / "etc"
        (etc / "toy.args").write_text(f"sha256:{'a' * 64}\n")
        (etc / "toy.env").write_text(GOOD)
        command = node.folder / "service/command"
        command.write_text(f". {etc}/toy.env\n{command.read_text()}")
        kinds = {
            "tether": (node.tether, node.program("serve_tether.py", str(node.rank), "--boot-id", str(node.boot_file)))
        }
        if node.keeper:
            kinds["keeper"] = (node.keeper, node.program("serve_keeper.py", "run"))
            (etc / "sparkrack-serve-toy-keeper.service").touch()
        for kind, (process, words) in kinds.items():
            assert process
            (node.folder / f"{kind}.pid").write_text(f"{process.pid}\n")
            (node.folder / f"{kind}.sh").write_text(f"exec {sys.executable} {' '.join(words)}\n")

    def recreate(self, content: str) -> subprocess.Popen[str]:
        """Run `serve recreate` as a process of its own, with an `apply` that writes this environment."""
        apply = (sys.executable, "-c", APPLY, str(self.rack.folder), f"{self.rack.prefix}n", content)
        words = [sys.executable, "-c", RUN, *apply]
        words += ["serve", "recreate", "toy", "--rack", str(self.file)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def environments(self) -> list[str]:
        return [(node.folder / "etc/toy.env").read_text() for node in self.rack.nodes]

    def pending(self) -> list[bool]:
        return [(node.folder / "etc/toy.pending").exists() for node in self.rack.nodes]


def brought_up(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> RecreateRack:
    rack.up(times={"probe_interval": 3600.0})
    verbs = RecreateRack(rack, monkeypatch)
    rack.start()
    return verbs


def back(verbs: RecreateRack, process: subprocess.Popen[str]) -> None:
    """The former version serves again, proven by a completion, and the exit code and one line say so."""
    output, complaint = process.communicate(timeout=500)
    assert process.returncode == 1, output + complaint
    assert "; its former version, that of generation " in complaint, output + complaint
    assert verbs.environments() == [GOOD, GOOD]
    assert verbs.pending() == [False, False]
    assert verbs.state()[:2] == ("ready", ["running", "running"])
    assert verbs.rack.record()["proven"] > verbs.rack.record()["started"]


def test_a_bad_image_goes_back_by_itself(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = brought_up(rack, monkeypatch)
    back(verbs, verbs.recreate(ENDS))
