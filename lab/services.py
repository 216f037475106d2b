"""Services for the nodes of a lab on the operator's address: a package repository and an image registry."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from core.util.project_files import PACKAGES
from lab import namespace as ns
from lab.errors import LabError
from lab.image.build import Base
from lab.layout import REGISTRY, REPOSITORY, Layout
from lab.paths import LabPaths, caller

START_SECONDS = 30
REGISTRY_FILE = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: "{folder}"}}
  delete: {{enabled: true}}
http: {{addr: "{address}"}}
"""


@dataclass(frozen=True)
class LabService:
    """A process in the lab's namespace that listens on the operator's address."""

    name: str
    command: tuple[str, ...]
    mark: Path
    """The argument that distinguishes this process from others."""
    address: tuple[str, int]
    namespace: str

    def pids(self) -> list[int]:
        """The process; empty when it is not running."""
        return ns.matching(self.namespace, str(self.mark))

    def start(self) -> None:
        """Start it and wait until it answers. Raises LabError with its output when it does not."""
        uid, gid = caller()
        enter = ["ip", "netns", "exec", self.namespace]
        user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--"]
        output = self.mark.with_suffix(".log")
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*enter, *user, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
                cwd=PACKAGES,
            )
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            if ns.answers(self.namespace, *self.address, greeting=False):
                return
            time.sleep(0.05)
        raise LabError(f"the {self.name} does not start:\n{output.read_text(errors='replace')}")


def prepare(layout: Layout, paths: LabPaths, base: Base) -> None:
    """Write what the services serve, once: a lab keeps its packages, as its nodes keep their disks."""
    (paths.images / "store").mkdir(parents=True, exist_ok=True)
    text = REGISTRY_FILE.format(folder=paths.images / "store", address=layout.registry)
    (paths.images / "registry.yaml").write_text(text)
    if not paths.packages.exists():
        side = paths.packages.with_suffix(".new")
        shutil.rmtree(side, ignore_errors=True)
        shutil.copytree(base.repository, side)
        side.rename(paths.packages)


def services(layout: Layout, paths: LabPaths, base: Base) -> tuple[LabService, ...]:
    """The services of a lab."""
    operator, config = str(layout.operator.ip), paths.images / "registry.yaml"
    repository = (sys.executable, "-m", "lab.repository", operator, str(REPOSITORY), str(paths.packages))
    registry = (str(base.registry), "serve", str(config))
    return (
        LabService("package repository", repository, paths.packages, (operator, REPOSITORY), paths.namespace),
        LabService("image registry", registry, config, (operator, REGISTRY), paths.namespace),
    )
