"""Facts of a node about its accounts, keys and names, and their comparison with the rack."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from core.model import Node, Rack
from core.ops import host_facts
from core.ops.rollback import PendingChange
from core.probes.own_files import OwnFiles
from core.util import managed_file, resources
from roles.access import desired, etc_hosts, known_hosts, node_key, sshd_config

TRIAL = PendingChange(name="access", revert="", seconds=60)
"""Common part of every pending change of this role; each has its own revert script."""
KEYS = "access-keys"
HOST_KEYS = "access-host-keys"
HOST_NAME = "/proc/sys/kernel/hostname"
MODES = "access-modes"
CLIENT = "access-client"
CLOUD = "access-cloud-init"
SSHD = "access-sshd"
SSHD_LINES = "access-sshd-lines"
FOREIGN = "access-foreign"
_KEYWORDS = "|".join(key.lower() for key in sshd_config.SETTINGS)

host_facts.register(
    "access",
    host_facts.Probe(
        files=(
            etc_hosts.HOSTS,
            etc_hosts.CLOUD,
            known_hosts.HOSTS,
            known_hosts.CLIENT,
            sshd_config.DROPIN,
            sshd_config.AT_BOOT,
            TRIAL.script,
            HOST_NAME,
        ),
        commands={
            # sudo names the account that the run logs in with. The private key itself is never printed.
            KEYS: '[ -n "${SUDO_USER:-}" ] && entry=$(getent passwd -- "$SUDO_USER") || exit 9; echo "user $entry"; '
            f"h=${{entry%:*}}; h=${{h##*:}}/.ssh; k=$h/{node_key.NAME}; p=$k.pub; a=$h/authorized_keys; "
            'set --; for f in "$h" "$k" "$p" "$a"; do [ ! -e "$f" ] && [ ! -L "$f" ] || set -- "$@" "$f"; done; '
            '[ $# = 0 ] || LC_ALL=C stat -c "thing %a %u:%g %n %F" -- "$@" || exit 9; '
            'for f in "$p" "$a"; do [ ! -f "$f" ] || [ -L "$f" ] || { c=$(base64 -w0 < "$f") && '
            'echo "content $f $c"; } || exit 9; done; '
            '[ ! -f "$k" ] || ! d=$(ssh-keygen -y -P "" -f /dev/stdin < "$k") || echo "derived $d"',
            HOST_KEYS: "cat /etc/ssh/ssh_host_*_key.pub",
            MODES: managed_file.probe_permissions((known_hosts.HOSTS, known_hosts.CLIENT, sshd_config.DROPIN)),
            CLIENT: f"[ -e {known_hosts.CLIENT} ] || exit 0; "
            f"{{ read -r _; read -r _ n _; }} < {known_hosts.CLIENT} || exit 0; "
            f'case "$n" in ""|-*) exit 0;; esac; ssh -G -F {known_hosts.MAIN} -- "$n"',
            CLOUD: "[ -e /etc/cloud/cloud.cfg ] && [ ! -e /etc/cloud/cloud-init.disabled ] || exit 0; "
            "for f in /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg /var/lib/cloud/instance/cloud-config.txt; do "
            '[ ! -e "$f" ] || grep -HE "^manage_etc_hosts[[:space:]]*:" "$f" || [ $? -eq 1 ] || exit 9; done',
            SSHD: "sshd -T",
            FOREIGN: resources.shell_text("roles.access", "files/foreign-access.sh"),
            SSHD_LINES: f'set -- {sshd_config.FOLDER}/*.conf; [ -e "$1" ] || set --; grep -HniE '
            f"'^[[:space:]]*(match|include|challengeresponseauthentication|{_KEYWORDS})([[:space:]=]|$)' "
            f'{sshd_config.MAIN} "$@" || [ $? -eq 1 ]',
        },
        constant=frozenset({HOST_KEYS, HOST_NAME}),
    ),
)


@dataclass(frozen=True)
class AccessFacts(OwnFiles):
    """Facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    MODES_FACT = MODES
    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def account(self) -> desired.NodeAccount:
        """Account of the run's logins."""
        first = self.reading.text(KEYS).partition("\n")[0]
        return desired.account(first.removeprefix("user "), self.rack.access.user)

    @cached_property
    def pair(self) -> node_key.KeyPair:
        """Folder of the account with the keys."""
        return node_key.key_pair(self.reading.text(KEYS).partition("\n")[2], self.account)

    @cached_property
    def host_name(self) -> str:
        """Host name of the node."""
        return desired.host_name(self.reading.text(HOST_NAME))

    @property
    def peer(self) -> desired.Peer:
        """Data of the node for its peers."""
        return desired.Peer(self.account, self.pair.key, desired.host_keys(self.reading.text(HOST_KEYS)))

    def complete(self) -> None:
        """Raises UnknownError unless every answer can be read: before the first change, all must be known."""
        for key in (KEYS, HOST_KEYS, HOST_NAME, MODES, CLIENT, CLOUD, SSHD, SSHD_LINES, FOREIGN):
            self.reading.text(key)
