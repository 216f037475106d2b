"""What a node says of its accounts, keys and names, and whether that is what the rack wants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roles.access import known, names, pair, sshd, state
from sparkrack.fleet import Node, Rack
from sparkrack.ops import probe
from sparkrack.ops.trial import Trial

TRIAL = Trial(name="access", revert="", seconds=60)
"""What every trial of this role has in common; each has a revert of its own."""
KEYS = "access-keys"
HOST_KEYS = "access-host-keys"
HOST_NAME = "/proc/sys/kernel/hostname"
MODES = "access-modes"
CLIENT = "access-client"
CLOUD = "access-cloud-init"
SSHD = "access-sshd"
SSHD_LINES = "access-sshd-lines"
_KEYWORDS = "|".join(key.lower() for key in sshd.SETTINGS)

probe.register(
    "access",
    probe.Probe(
        files=(names.HOSTS, names.CLOUD, known.HOSTS, known.CLIENT, sshd.DROPIN, sshd.AT_BOOT, TRIAL.script, HOST_NAME),
        commands={
            # sudo names the account that the run logs in with. The private key itself is never printed.
            KEYS: '[ -n "${SUDO_USER:-}" ] && entry=$(getent passwd -- "$SUDO_USER") || exit 9; echo "user $entry"; '
            f"h=${{entry%:*}}; h=${{h##*:}}/.ssh; k=$h/{pair.NAME}; p=$k.pub; a=$h/authorized_keys; "
            'set --; for f in "$h" "$k" "$p" "$a"; do [ ! -e "$f" ] && [ ! -L "$f" ] || set -- "$@" "$f"; done; '
            '[ $# = 0 ] || LC_ALL=C stat -c "thing %a %u:%g %n %F" -- "$@" || exit 9; '
            'for f in "$p" "$a"; do [ ! -f "$f" ] || [ -L "$f" ] || { c=$(base64 -w0 < "$f") && '
            'echo "content $f $c"; } || exit 9; done; '
            '[ ! -f "$k" ] || ! d=$(ssh-keygen -y -P "" -f /dev/stdin < "$k") || echo "derived $d"',
            HOST_KEYS: "cat /etc/ssh/ssh_host_*_key.pub",
            # One that is not there is told by its content.
            MODES: f'stat -c "%a:%U:%G %n" {known.HOSTS} {known.CLIENT} {sshd.DROPIN} || true',
            CLIENT: f"[ -e {known.CLIENT} ] || exit 0; {{ read -r _; read -r _ n _; }} < {known.CLIENT} || exit 0; "
            f'case "$n" in ""|-*) exit 0;; esac; ssh -G -F {known.MAIN} -- "$n"',
            CLOUD: "[ -e /etc/cloud/cloud.cfg ] && [ ! -e /etc/cloud/cloud-init.disabled ] || exit 0; "
            "for f in /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg /var/lib/cloud/instance/cloud-config.txt; do "
            '[ ! -e "$f" ] || grep -HE "^manage_etc_hosts[[:space:]]*:" "$f" || [ $? -eq 1 ] || exit 9; done',
            SSHD: "sshd -T",
            SSHD_LINES: f'set -- {sshd.FOLDER}/*.conf; [ -e "$1" ] || set --; grep -HniE '
            f"'^[[:space:]]*(match|include|challengeresponseauthentication|{_KEYWORDS})([[:space:]=]|$)' "
            f'{sshd.MAIN} "$@" || [ $? -eq 1 ]',
        },
        lasting=frozenset({HOST_KEYS, HOST_NAME}),
    ),
)


@dataclass(frozen=True)
class View:
    """A node as it was read. Raises UnknownError or ValueError where it cannot be told."""

    rack: Rack
    node: Node
    reading: probe.Reading

    @cached_property
    def account(self) -> state.Account:
        """Whom the run logs in as."""
        first = self.reading.text(KEYS).partition("\n")[0]
        return state.account(first.removeprefix("user "), self.rack.access.user)

    @cached_property
    def pair(self) -> pair.Pair:
        """Its folder with the keys."""
        return pair.pair(self.reading.text(KEYS).partition("\n")[2], self.account)

    @cached_property
    def host_name(self) -> str:
        """What the node calls itself."""
        return state.host_name(self.reading.text(HOST_NAME))

    @property
    def peer(self) -> state.Peer:
        """What the others need to know of it."""
        return state.Peer(self.account, self.pair.key, state.host_keys(self.reading.text(HOST_KEYS)))

    def complete(self) -> None:
        """Raises UnknownError unless every answer can be read: before the first change, all must be known."""
        for key in (KEYS, HOST_KEYS, HOST_NAME, MODES, CLIENT, CLOUD, SSHD, SSHD_LINES):
            self.reading.text(key)

    def kept_by_root(self, path: str) -> bool:
        """Whether a file of ours is there with the mode and the owner that it shall have."""
        return f"644:root:root {path}" in self.reading.text(MODES).splitlines()
