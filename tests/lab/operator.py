"""A virtual node as an operator's machine: sparkrack laid out on it, with what it needs to reach the rack.

The node has no package index to install from, so it gets the very files that run the tests, Python and all, through
the folder that it shares with this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from tests.lab.virtual import REPOSITORY, VirtualRack

HOME = "/lab/operator"
"""Path of the home folder on the node."""
PROGRAM = f"{HOME}/bin/sparkrack"
RACK = "/home/ops/rack"
"""The rack file's folder on the node, readable by its login user alone."""
WHEEL = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
PARTS = (*WHEEL["only-include"], "group_data", "inventory.py", "deploy.py", "remove.py", "config.py")
"""What the wheel has, and what pyinfra reads of a clone."""
NAMED = ("rack.yaml", "rack.lock.json", "known_hosts", "id_ed25519", "switches/*/password", "switches/*/reader")
"""The rack file and the files that it names."""
WRAPPER = f"""\
#!/bin/sh
export PYTHONHOME={HOME} PYTHONPATH={HOME}/tree:{HOME}/site PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH={HOME}/lib
exec {HOME}/bin/python -m sparkrack.cli.main "$@"
"""


@contextmanager
def operator(rack: VirtualRack, node: str) -> Iterator[None]:
    """sparkrack as PROGRAM on the node, the rack file and what it names in RACK; both are gone afterwards."""
    shared = rack.paths.node(node) / "shared"
    folder = shared / "operator"
    shutil.rmtree(folder, ignore_errors=True)
    luggage = shared / "rack.tar"
    try:
        _lay_out(folder)
        _pack_rack_files(rack, luggage, owner=shared.stat())
        rack.ssh(node, f"install -d -m 0700 {RACK} && tar -C {RACK} -xf /lab/rack.tar && chown -R ops: {RACK}")
        luggage.unlink()
        yield
    finally:
        luggage.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        rack.ssh(node, f"rm -rf {RACK}", check=False)


def _lay_out(folder: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("bin", "lib", "tree"):
        (folder / name).mkdir(parents=True)
    _copy_files(Path(sysconfig.get_path("stdlib")), folder / "lib" / version)
    _copy_files(Path(sysconfig.get_path("purelib")), folder / "site")
    for library in Path(sysconfig.get_config_var("LIBDIR")).glob(f"lib{version}*.so*"):
        shutil.copy2(library, folder / "lib")
    shutil.copy2(Path(sys.executable).resolve(), folder / "bin/python")
    for part in PARTS:
        _copy_files(REPOSITORY / part, folder / "tree" / part)
    (folder / "bin/sparkrack").write_text(WRAPPER)
    (folder / "bin/sparkrack").chmod(0o755)


def _copy_files(source: Path, target: Path) -> None:
    """Use hard links where the file system supports them, since the files are large and never written."""
    if subprocess.run(["cp", "-aLl", source, target], capture_output=True, check=False).returncode:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-aL", source, target], check=True)


def _pack_rack_files(rack: VirtualRack, luggage: Path, owner: os.stat_result) -> None:
    """The rack file and what it names, for the eyes of the node's kernel only."""
    luggage.touch(mode=0o600)
    os.chown(luggage, owner.st_uid, owner.st_gid)
    with tarfile.open(luggage, "w") as tar:
        for pattern in NAMED:
            for file in rack.folder.glob(pattern):
                data = file.read_bytes().replace(str(rack.folder).encode(), RACK.encode())
                entry = tar.gettarinfo(file, str(file.relative_to(rack.folder)))
                entry.size = len(data)
                tar.addfile(entry, BytesIO(data))
