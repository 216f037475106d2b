"""What preflight asks of a node, and what the nodes of a run have said."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from gevent.lock import Semaphore
from pyinfra.api.host import Host

from roles.preflight import answers
from roles.preflight.state import ECN, HOTPLUG, Facts
from sparkrack.ops import lock, probe

OS = "/etc/os-release"
CMDLINE = "/proc/cmdline"
MACHINE_ID = "/etc/machine-id"
LASTING = "preflight-machine"
NOW = "preflight-now"

# Lines `question exit text`: a tool that is missing or fails is an answer, since only one gate needs it. What a tool
# prints is put on one line, without the comments that dmidecode adds for a table newer than itself. nvidia-smi and
# lspci hang where GPU or card do; `timeout` ends them.
_ASK = r"""export LC_ALL=C
say() { printf '%s\n' "$*"; }
ask() {
q=$1; shift; o=$("$@" 2>/dev/null); s=$?; t=
while read -r l; do case $l in '#'*) ;; *) t="$t $l" ;; esac; done <<END
$o
END
say "$q $s$t"
}
"""

_LASTING = r"""ask machine uname -m
ask kernel uname -r
ask maker dmidecode -s system-manufacturer
ask board dmidecode -s baseboard-manufacturer
ask product dmidecode -s system-product-name
ask bios dmidecode -s bios-version
ask driver timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader
ask engine dpkg-query -W -f '${db:Status-Status} ${Package} ${Version} ' docker-ce docker.io
first=yes
for d in /sys/class/net/enp1s0f[01]np[01] /sys/class/net/enP2p1s0f[01]np[01]; do
[ -e "$d" ] || continue
say "interface 0 ${d##*/}"
[ ! -e "$d/ECN" ] || say "ecn 0 ${d##*/}"
[ -z "$first" ] || ask firmware ethtool -i "${d##*/}"
first=
done
o=$(timeout 20 lspci -D -vv -d 15b3: 2>/dev/null)
say "links $?"
while read -r l; do
case $l in LnkSta:* | [0-9a-f][0-9a-f][0-9a-f][0-9a-f]*:[0-9a-f][0-9a-f]:*) say "pci 0 $l" ;; esac
done <<END
$o
END
[ ! -e HOTPLUG ] || say "hotplug 0"
for k in /etc/ssh/ssh_host_*_key.pub; do
[ -e "$k" ] || continue
l=
read -r l < "$k" || [ -n "$l" ] || exit 9
say "hostkey 0 $l"
done"""

# Whoever installs locks lock-frontend, dpkg itself as well. Another file system may have a locked file of the same
# number, so the holder must have this one open.
# docker keeps images below its data-root, since version 29 of a new engine below containerd's.
_NOW = r"""ask clock date +%s.%N
r=
[ ! -e /etc/docker/daemon.json ] ||
r=$(sed -n 's/.*"data-root"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p' /etc/docker/daemon.json) || exit 9
[ -n "$r" ] || r=/var/lib/docker
set -- /
for p in "$r" /var/lib/containerd; do [ ! -d "$p" ] || set -- "$@" "$p"; done
o=$(df -k --output=avail,target -- "$@" 2>/dev/null)
s=$?
while read -r l; do case $l in Avail*) ;; *) say "room $s $l" ;; esac; done <<END
$o
END
f=/var/lib/dpkg/lock-frontend
[ -e "$f" ] || exit 0
i=$(stat -c %i "$f") || exit 9
while read -r _ _ _ _ pid where _; do
case $where in *:"$i") ;; *) continue ;; esac
ls -l "/proc/$pid/fd" 2>/dev/null | grep -qF -- "-> $f" || continue
n=$(cat "/proc/$pid/comm" 2>/dev/null) || n=?
say "locked 0 $n (pid $pid)"
done < /proc/locks"""

probe.register(
    "preflight",
    probe.Probe(
        files=(OS, CMDLINE, MACHINE_ID, lock.PATH),
        commands={
            LASTING: _ASK + _LASTING.replace("/ECN", f"/{ECN}").replace("HOTPLUG", HOTPLUG),
            NOW: _ASK + _NOW,
        },
        lasting=frozenset({OS, CMDLINE, MACHINE_ID, LASTING}),
    ),
)


@dataclass(frozen=True)
class _Kept:
    """What was made of one node in one stage of a run."""

    stage: bool
    facts: Facts | Exception


_kept: WeakKeyDictionary[Host, _Kept] = WeakKeyDictionary()
_locks: WeakKeyDictionary[Host, Semaphore] = WeakKeyDictionary()


def look(host: Host) -> Facts:
    """The facts of a node, once for each stage of a run: all hosts judge one another by the same.

    Raises UnknownError or ValueError where they cannot be told; a node that does not answer is not waited for again.
    """
    stage = host.state.is_executing
    with _locks.setdefault(host, Semaphore()):
        kept = _kept.get(host)
        if kept is None or kept.stage != stage:
            kept = _kept[host] = _Kept(stage, _facts(host))
    if isinstance(kept.facts, Exception):
        raise kept.facts
    return kept.facts


def _facts(host: Host) -> Facts | Exception:
    try:
        reading = probe.read(host, "preflight")
        texts = answers.Texts(*map(reading.text, (OS, CMDLINE, MACHINE_ID, LASTING, NOW)))
        return answers.facts(texts, asked=(reading.asked, reading.answered))
    except (probe.UnknownError, ValueError) as unknown:
        return unknown


def busy(host: Host) -> lock.Holder | None:
    """Who else changes the rack now, by the lock file of this node, which is that of the rack only on its head node.

    Raises UnknownError where it cannot be told.
    """
    content = probe.read(host, "preflight").content(lock.PATH)
    return lock.others(host.state, None if content is None else content.decode(errors="replace"))


def fleet(host: Host) -> dict[str, Facts]:
    """The facts of every node of this run, by name and in the order of the rack; who cannot be read is left out."""
    found = {}
    for other in host.state.inventory.get_active_hosts():
        node = other.data.get("node")
        if node is None:
            continue
        try:
            found[node.name] = look(other)
        except (probe.UnknownError, ValueError):
            continue  # it is refused for that itself
    order = list(host.data.rack.nodes)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))
