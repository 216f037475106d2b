"""Docker: every container of a node starts inside the rack's memory ceiling, with bounded logs, under a known engine.

The engine that is installed is kept and runs now and after a boot. Its daemon.json is edited key by key: ours are the
slice of all containers, systemd as cgroup driver, the size of logs, live-restore, unlimited locked memory (RDMA) and
NVIDIA's runtime where its toolkit is installed; every other byte stays. What the running engine was started with is
compared as well as the file, and it is restarted only when that differs, never under containers that would die of it
unless rack.yaml allows that. Running containers without a memory limit are given one. What this role cannot do: move
a running container into the slice, bound memory of CUDA, or reach a container before the next run does.
"""

from __future__ import annotations

from core.model.role import Role
from roles.docker.adopt import ADOPT
from roles.docker.options import DockerOptions

ROLE = Role(
    __name__,
    title="Docker",
    promise=(
        "engine installed, `daemon.json` merged key by key, restarted only for a reason that the plan states,"
        " every container limited"
    ),
    proof="`docker info`, `docker inspect`, `dockerd --validate`",
    options=DockerOptions,
    risky=True,
    adopt=ADOPT,
)
