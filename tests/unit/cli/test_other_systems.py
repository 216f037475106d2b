"""An operator's machine that is not Linux: no /proc, few programs on PATH, other names in the standard library.

It is this machine with a part of it hidden, so it cannot show what macOS does; it shows what is not needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.generated import REPOSITORY
from tests.unit.cli.cli_fixtures import closed_port

SECONDS = 300
PROGRAMS = ("ssh", "ssh-add", "ssh-keygen", "ssh-keyscan")
"""What macOS has of the programs that the operator's machine is asked for."""
HIDING = """\
import builtins, io, os, socket, sys, sysconfig, types
sysconfig.get_config_vars()  # and gevent read what the platform is at their import
import gevent.socket
sys.platform = "darwin"
proxies = types.ModuleType("_scproxy")
proxies._get_proxy_settings = proxies._get_proxies = dict
sys.modules["_scproxy"] = proxies
del socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT, os.sched_getaffinity


def without_linux(real):
    def call(place, *more, **named):
        if str(place).startswith(("/proc", "/sys", "/etc/machine-id")):
            raise FileNotFoundError(2, "No such file or directory", str(place))
        return real(place, *more, **named)

    return call


os.readlink, os.stat, os.open = map(without_linux, (os.readlink, os.stat, os.open))
builtins.open = io.open = without_linux(io.open)
from sparkrack.cli.main import main
main()
"""
RACK = """\
rack: home
access: {user: ops, key: key, known_hosts: known_hosts, port: PORT}
nodes:
  spark1: {address: 127.77.0.11, vendor: nvidia, ports: {1: spark2/1}}
  spark2: {address: 127.77.0.12, vendor: nvidia, ports: {}}
fabric: {subnets: [192.168.100.0/24, 192.168.101.0/24]}
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("check", 0, "OK: home has 2 nodes"),
        ("topology", 0, "home (direct): 1 link"),
        ("export ssh-config", 0, "IdentityFile"),
        ("drift timer --user nobody", 0, "systemd, which starts these, runs on Linux only, and this is darwin"),
        ("lab up", 1, "the virtual rack runs on Linux only, and this is darwin"),
        ("plan", 1, "2 hosts, 0 changes, 2 unknown"),
        ("up -y --timeout 0", 1, "spark1, spark2: no answer within 0 s"),
        ("init --node spark1=127.77.0.11 --switch 127.77.0.2", None, "it has no program `ip` (iproute2 of Linux)"),
    ],
)
def test_a_command_works_or_says_in_one_line_what_it_needs(
    tmp_path: Path, words: str, code: int | None, said: str
) -> None:
    for program in PROGRAMS:
        found = shutil.which(program)
        assert found
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / program).symlink_to(found)
    init = words.startswith("init")
    file = tmp_path / ("new.yaml" if init else "rack.yaml")
    if not init:
        file.write_text(RACK.replace("PORT", str(closed_port())))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    (tmp_path / "known_hosts").touch()
    names = [] if words == "lab up" else ["--out" if init else "--rack", str(file)]
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", HIDING, *words.split(), *names],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(REPOSITORY), "COLUMNS": os.environ.get("COLUMNS", "120")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert said in done.stdout + done.stderr, done.stdout + done.stderr
    assert code is None or done.returncode == code
