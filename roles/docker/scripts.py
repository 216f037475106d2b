"""Shell texts to read, validate and restart docker on a node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from core.util import resources
from roles.docker.containers import CGROUPS
from roles.docker.desired import CONFIG, DROPIN, RUN

PACKAGES = ("docker-ce", "docker-ce-cli", "docker.io", "docker-cli")
"""docker.io of Debian 13 comes without a client, that of Ubuntu with one; docker-ce has its own package for it."""
KEPT = f"{RUN}/docker.before"
"""The daemon.json before ours, as long as the engine has not come up with ours; empty when there was none."""
START_SECONDS = 120
"""Seconds for a start; on a node in use it takes 1 to 3 s, more where many containers come back."""

# Only the outermost cgroup is a container of this engine: one may run an engine of its own inside. Both forms, as the
# engine may still be one whose cgroup driver is cgroupfs.
FIND = (
    f"find {CGROUPS} -ignore_readdir_race -regextype posix-extended -type d "
    r"-regex '.*/(docker-[0-9a-z]{12,64}\.scope|[0-9a-f]{64})' -prune -print"
)

CONTAINERS = resources.shell_text("roles.docker", "templates/running-containers.sh", find=FIND)
"""Probe command: each running container with its limits. One that ends during the probe is left out."""

ENGINE = resources.shell_text(
    "roles.docker",
    "templates/engine.sh",
    packages=" ".join(PACKAGES),
    config=CONFIG,
    cgroups=CGROUPS,
    run=RUN,
)
"""For the probe: which engine is installed, and how the one that runs was started, in lines `what value`."""

USERS = "cut -d: -f1,4 /etc/passwd && echo && { grep '^docker:' /etc/group || [ $? -eq 1 ]; }"
"""For the probe: users with their first group, and who else is in group docker."""


def validated(flags: Sequence[str], nvidia: bool, mode: str, idle: bool, keep: bool) -> str:
    """Return shell text that stops unless dockerd would accept "$new".

    `flags`: those of the running dockerd, since a setting in both places prevents its start. `nvidia`: let NVIDIA's own
    tool add its runtime first; it rewrites the whole file, with its keys sorted. `idle`: no container may run in
    docker. `keep`: the file that is replaced, which `restart` can restore.
    """
    lines = []
    if nvidia:
        lines = [
            # claim: docker.nvidia-ctk
            _checked_command('nvidia-ctk runtime configure --runtime=docker --config="$new"'),
            f'chown root:root "$new"; chmod {mode} "$new"',
        ]
    words = shlex.join(flags)
    lines.append(_checked_command(f'dockerd --validate --config-file "$new"{" " if words else ""}{words}'))
    if idle:
        lines.append(unused())
    if keep:
        lines.append(
            f"mkdir -p -m 700 {RUN}; [ -e {KEPT} ] || "
            f"{{ if [ -e {CONFIG} ]; then cat {CONFIG}; fi > {KEPT}.new; mv {KEPT}.new {KEPT}; }}"
        )
    return "; ".join(lines)


def _checked_command(command: str) -> str:
    return f"output=$({command} 2>&1) || {{ printf '%s\\n' \"$output\" >&2; exit 1; }}"


def unused() -> str:
    """Shell text that stops when anything has been started in docker since it was looked at."""
    return (
        f'busy=$({CONTAINERS}\n); [ -z "$busy" ] || '
        "{ echo 'docker must be restarted, and a container was started during the run; "
        "run again after it has ended' >&2; exit 1; }"
    )


def restart(last: str | None, idle: bool) -> str:
    """Return shell text that starts or restarts the engine and checks that it answers, or restores the old file.

    `last`: the id of the last start whose file is known to work, if any. Repeatable after a kill at any point: the file
    that the engine was started with, which makes the restart necessary, changes only with the start.
    """
    old = f"{RUN}/docker.{last}" if last else KEPT
    return resources.shell_text(
        "roles.docker",
        "templates/restart.sh",
        unused=unused() if idle else ":",
        seconds=START_SECONDS,
        run=RUN,
        dropin=DROPIN,
        old=old,
        config=CONFIG,
        kept=KEPT,
    )


# claim: docker.version-29
def reload(live_restore: bool, nvidia: bool) -> str:
    """Return shell text that reloads the running engine, and checks that it applied the settings."""
    wanted = f"'{str(live_restore).lower()} '{'*nvidia*' if nvidia else '*'}"
    return resources.file_text("roles.docker", "templates/reload.sh", wanted=wanted, run=RUN, config=CONFIG)
