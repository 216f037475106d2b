"""What is run on a node to read, validate and restart docker. Pure: shell texts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from roles.docker.containers import CGROUPS
from roles.docker.state import CONFIG, DROPIN, RUN

PACKAGES = ("docker-ce", "docker-ce-cli", "docker.io", "docker-cli")
"""docker.io of Debian 13 comes without a client, that of Ubuntu with one; docker-ce has its own package for it."""
UNITS = ("docker.service", "docker.socket", "containerd.service")
ENABLED = "/etc/systemd/system/multi-user.target.wants/docker.service"
KEPT = f"{RUN}/docker.before"
"""The daemon.json before ours, as long as the engine has not come up with ours; empty when there was none."""
SECONDS = 120
"""How long a start may take; on a node in use it takes 1 to 3 s, more where many containers come back."""

# Only the outermost cgroup is a container of this engine: one may run an engine of its own inside. Both forms, as the
# engine may still be one whose cgroup driver is cgroupfs.
FIND = (
    f"find {CGROUPS} -ignore_readdir_race -regextype posix-extended -type d "
    r"-regex '.*/(docker-[0-9a-z]{12,64}\.scope|[0-9a-f]{64})' -prune -print"
)

CONTAINERS = f"""\
all=$({FIND}) || exit 9
printf '%s\\n' "$all" | while IFS= read -r d; do
[ -n "$d" ] || continue
case "$(cat "$d/cgroup.events" 2>/dev/null)" in *'populated 1'*) ;; *) continue;; esac
m=$(cat "$d/memory.max" 2>/dev/null) && s=$(cat "$d/memory.swap.max" 2>/dev/null || echo -) ||
{{ [ ! -e "$d" ] && continue; exit 9; }}
printf '%s %s %s\\n' "$d" "$m" "$s"
done"""
"""For the probe: each running container with its limits. One that ends meanwhile is left out."""

ENGINE = f"""\
found() {{ p=$(command -v "$1") || return 0; printf '%s %s\\n' "$1" "$p"; }}
found dockerd; found nvidia-ctk
command -v dockerd >/dev/null || LC_ALL=C apt-cache policy {" ".join(PACKAGES)} |
awk '/^[^ ]/ {{n = $1}} /^  Candidate: [^(]/ {{sub(/:$/, "", n); print "candidate", n}}'
[ ! -L {ENABLED} ] || echo 'enabled yes'
for u in {" ".join(UNITS)}; do for d in /etc/systemd/system /run/systemd/system; do
case "$(readlink "$d/$u")" in /dev/null) echo "masked $d/$u";; esac; done; done
[ ! -s /var/lib/docker/swarm/docker-state.json ] || echo 'swarm yes'
if [ -e {CONFIG} ] || [ -L {CONFIG} ]; then printf 'stat '; stat -c '%a:%U:%G:%F' {CONFIG} || exit 9; fi
pid=
for p in $(cat /run/docker.pid 2>/dev/null; echo; cat {CGROUPS}/system.slice/docker.service/cgroup.procs 2>/dev/null)
do case "$(cat "/proc/$p/comm" 2>/dev/null)" in dockerd) pid=$p; break;; esac; done
[ -n "$pid" ] || exit 0
read -r g < "/proc/$pid/cgroup" || exit 9
printf 'cgroup %s\\n' "$g"
printf 'command '; base64 -w0 < "/proc/$pid/cmdline" || exit 9; echo
id=$(tr '\\0' '\\n' < "/proc/$pid/environ" | sed -n 's/^INVOCATION_ID=//p') || exit 9
case "$id" in *[!0-9a-f]*|'') exit 0;; esac
printf 'start %s\\n' "$id"
[ ! -e {RUN}/docker.$id ] || {{ printf 'with '; base64 -w0 < {RUN}/docker.$id || exit 9; echo; }}"""
"""For the probe: which engine is installed, and how the one that runs was started, in lines `what value`."""

USERS = "cut -d: -f1,4 /etc/passwd && echo && { grep '^docker:' /etc/group || [ $? -eq 1 ]; }"
"""For the probe: users with their first group, and who else is in group docker."""


def validated(flags: Sequence[str], nvidia: bool, mode: str, idle: bool, keep: bool) -> str:
    """Shell text that stops unless dockerd would take "$new".

    `flags`: those of the running dockerd, since what is said in both places stops it from starting. `nvidia`: let
    NVIDIA's own tool add its runtime first; it writes the whole file anew, with its keys sorted. `idle`: nothing may
    run in docker. `keep`: the file that is replaced, for `restart` to go back to.
    """
    lines = []
    if nvidia:
        lines = [
            _checked('nvidia-ctk runtime configure --runtime=docker --config="$new"'),
            f'chown root:root "$new"; chmod {mode} "$new"',
        ]
    words = shlex.join(flags)
    lines.append(_checked(f'dockerd --validate --config-file "$new"{" " if words else ""}{words}'))
    if idle:
        lines.append(unused())
    if keep:
        lines.append(
            f"mkdir -p -m 700 {RUN}; [ -e {KEPT} ] || "
            f"{{ if [ -e {CONFIG} ]; then cat {CONFIG}; fi > {KEPT}.new; mv {KEPT}.new {KEPT}; }}"
        )
    return "; ".join(lines)


def _checked(command: str) -> str:
    return f"said=$({command} 2>&1) || {{ printf '%s\\n' \"$said\" >&2; exit 1; }}"


def unused() -> str:
    """Shell text that stops when anything has been started in docker since it was looked at."""
    return (
        f'busy=$({CONTAINERS}\n); [ -z "$busy" ] || '
        "{ echo 'docker must be restarted, and a container was started meanwhile; run again when it has ended' >&2; "
        "exit 1; }"
    )


_ANSWERS = """\
answers() { i=0; until timeout 10 docker -H unix:///run/docker.sock version >/dev/null 2>&1; do
i=$((i + 1)); [ "$i" -lt 30 ] || return 1; sleep 1; done; }
"""

_FAILED = """\
why=$(journalctl -u docker.service -t dockerd -n 60 -o cat 2>/dev/null |
grep -iE 'fail|error|fatal' | tail -n 1 | cut -c1-400)
echo "docker does not start with this daemon.json: ${why:-journalctl -u docker says more}" >&2
"""


def restart(last: str | None, idle: bool) -> str:
    """Shell text that starts or restarts the engine and proves that it answers, or brings the old file back.

    `last`: the id of the start whose file is known to be good, if any. Repeatable after it was killed anywhere: what
    makes it due, the file that the engine was started with, changes only when it has been.
    """
    old = f"{RUN}/docker.{last}" if last else KEPT
    return f"""\
{unused() if idle else ":"}
{_ANSWERS}up() {{ systemctl reset-failed docker.service docker.socket 2>/dev/null || true
timeout {SECONDS} systemctl restart docker.service && answers; }}
mkdir -p -m 700 {RUN}
systemctl daemon-reload
if up; then
id=$(systemctl show -p InvocationID --value docker.service)
[ -e {RUN}/docker.$id ] || {{ echo 'docker runs, but {DROPIN} is not heeded' >&2; exit 1; }}
find {RUN} -maxdepth 1 -name 'docker.*' ! -name "docker.$id" -delete
exit 0
fi
{_FAILED}[ -e {old} ] && ! cmp -s {old} {CONFIG} || {{ echo 'there is no older daemon.json to go back to; \
what others wrote is in /var/backups/sparkrack' >&2; exit 1; }}
if [ -s {old} ]; then back=$(mktemp /etc/docker/.daemon.json.XXXXXX); trap 'rm -f "$back"' EXIT
cat {old} > "$back"; chmod --reference={CONFIG} "$back"; sync "$back"; mv -fT "$back" {CONFIG}
else rm -f {CONFIG}; fi
sync /etc/docker
if up; then echo 'the old daemon.json is back, and docker runs with it' >&2
else echo 'the old daemon.json is back, and docker does not start with it either' >&2; fi
rm -f {KEPT}
exit 1"""


def reload(live_restore: bool, nvidia: bool) -> str:
    """Shell text that lets the running engine take up what it can without a restart, and proves that it has."""
    wanted = f"'{str(live_restore).lower()} '{'*nvidia*' if nvidia else '*'}"
    return f"""\
systemctl reload docker.service
taken() {{ case "$(timeout 10 docker -H unix:///run/docker.sock info --format \
'{{{{.LiveRestoreEnabled}}}} {{{{json .Runtimes}}}}')" in {wanted}) return 0;; esac; return 1; }}
i=0; until taken; do i=$((i + 1))
[ "$i" -lt 15 ] || {{ echo 'docker has not taken up its daemon.json; journalctl -u docker says why' >&2; exit 1; }}
sleep 1; done
c={RUN}/docker.$(systemctl show -p InvocationID --value docker.service)
umask 077; mkdir -p {RUN}; cat {CONFIG} > "$c.new"; mv "$c.new" "$c"
"""
