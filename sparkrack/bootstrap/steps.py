"""Missing parts of a node, and the script for each, in an order that lets the next run complete an interrupted one.

First the login by key, after which no password is needed; then the host name.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from roles.preflight.desired import LOGIN
from sparkrack.bootstrap.node_facts import BEGIN, CLOUD, HOSTS, SUDOERS, NodeState
from sparkrack.node_login.errors import BootstrapError

CLOUD_TEXT = b"# Written by sparkrack: cloud-init leaves the host name alone.\npreserve_hostname: true\n"
_OTHERS_WRITE = 0o022
_SYSTEM_SHELLS = ("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false")


@dataclass(frozen=True)
class BootstrapStep:
    """One write. `what`: its description, in the imperative. `script`: executes it whole, or nothing of it."""

    what: str
    script: str


def steps(seen: NodeState, user: str, node: str, key: str) -> list[BootstrapStep]:
    """Return the missing steps of a node. `user`, `node`: names of rack.yaml. `key`: the operator's public key, a line.

    Raises BootstrapError for a state that must be corrected manually.
    """
    return [
        *_list_account_steps(seen, user),
        *_key_steps(seen, user, key),
        *_list_sudoers_steps(seen, user),
        *_name_steps(seen, node),
    ]


def set_up_for_another(seen: NodeState, user: str) -> str:
    """Return why a user whom rack.yaml does not name must not take over a node; empty for a new node, and for its own
    user. Another operator of the rack would do the same again."""
    if seen.login in ("", user):
        return ""
    return (
        f"it was set up for the user {seen.login}, and rack.yaml names none, so that would become {user}, who runs "
        f"this; write access: {{user: {seen.login}}}, or {{user: {user}}} to change it"
    )


def _list_account_steps(seen: NodeState, user: str) -> Iterator[BootstrapStep]:
    found = seen.account
    groups = ",".join(name for name in sorted(seen.groups) if found is None or name not in found.groups)
    if found is None:
        # `*` and not `!`: sshd without PAM rejects a locked account. No password matches `*`.
        make = f"useradd --create-home --shell /bin/bash --password '*' $own -- {user}"
        add = f"; usermod --append --groups {groups} -- {user}" if groups else ""
        own = f'own=--user-group; ! getent group {user} >/dev/null || own="--no-user-group --gid {user}"'
        yield BootstrapStep(f"make user {user}, without a password", f"{BEGIN}{own}; {make}{add}")
        return
    if found.shell in _SYSTEM_SHELLS:
        raise BootstrapError(f"its user {user} has {found.shell} for a shell; name another one as access.user")
    if found.shell.endswith("csh"):
        why = f"its user {user} has {found.shell} for a shell, which no run supports"
        raise BootstrapError(f"{why}; on the node: chsh -s /bin/bash {user}")
    if groups:
        yield BootstrapStep(f"put {user} into {groups}", f"{BEGIN}usermod --append --groups {groups} -- {user}")
    if "home" not in seen.things:
        script = f"{BEGIN}install -d -m 750 -o {user} -g \"$(id -g {user})\" '{_check_plain_path(found.home)}'"
        yield BootstrapStep(f"make the home of {user}, {found.home}", script)


def _key_steps(seen: NodeState, user: str, key: str) -> Iterator[BootstrapStep]:
    things = seen.things
    for name in ("home", "folder", "authorized"):
        if name in things and things[name].link and name != "home":
            raise BootstrapError(f"{_where_text(name)} of {user} is a symbolic link; put a file of its own there")
        if seen.account and name in things and things[name].owner not in (seen.account.number, 0):
            raise BootstrapError(
                f"{_where_text(name)} of {user} belongs to user number {things[name].owner}; give it back"
            )
    there = key.split()[1] in _content_words(seen.authorized)
    open_to_others = any(things[name].mode & _OTHERS_WRITE for name in ("folder", "authorized") if name in things)
    theirs = seen.account is not None and all(
        things[name].owner == seen.account.number for name in ("folder", "authorized") if name in things
    )
    if there and theirs and not open_to_others:
        return
    line = f"{key}\n".encode()
    add = "" if there else f"{_base64_writer(line, append=True)}; "
    # As that user: a link that it creates in between can only affect its own files. Root creates its folder first.
    inside = (
        "set -eu; umask 077; cd; mkdir -p .ssh; chmod go-w .ssh; [ ! -L .ssh ]; [ ! -L .ssh/authorized_keys ]; "
        "new=$(mktemp .ssh/.authorized_keys.XXXXXX); trap 'rm -f \"$new\"' EXIT; "
        'if [ -e .ssh/authorized_keys ]; then cat .ssh/authorized_keys > "$new"; fi; '
        '[ ! -s "$new" ] || [ -z "$(tail -c 1 "$new")" ] || echo >> "$new"; '
        f"{add}"
        'chmod 600 "$new"; sync "$new"; mv -fT "$new" .ssh/authorized_keys'
    )
    own = "".join(
        f'chown -h {user}: "$home/{path}"; '
        for name, path in (("folder", ".ssh"), ("authorized", ".ssh/authorized_keys"))
        if seen.account and name in things and things[name].owner != seen.account.number
    )
    home = f"home=$(getent passwd {user} | cut -d: -f6); " if own else ""
    what = f"let the operator's key in as {user}" if not there else f"put authorized_keys of {user} right"
    yield BootstrapStep(
        what, f'{BEGIN}{home}{own}export HOME="$(getent passwd {user} | cut -d: -f6)"; {_as_user(user, inside)}'
    )


def _as_user(user: str, script: str) -> str:
    return f"runuser -u {user} -- sh -c {_quoted_word(script)}"


def _list_sudoers_steps(seen: NodeState, user: str) -> Iterator[BootstrapStep]:
    wanted = f"{LOGIN} {user} and become root.\n{user} ALL=(ALL:ALL) NOPASSWD: ALL\n"
    thing = seen.things.get("sudoers")
    fine = thing is not None and thing.kind.startswith("regular") and thing.owner == 0 and thing.mode == 0o440
    if fine and seen.sudoers == wanted.encode():
        return
    yield BootstrapStep(
        f"let {user} use sudo without a password",
        _put_file(SUDOERS, wanted.encode(), None, "440", 'visudo -cqf "$new" >&2'),
    )


def _name_steps(seen: NodeState, node: str) -> Iterator[BootstrapStep]:
    if seen.cloud and seen.cloud_text != CLOUD_TEXT:
        yield BootstrapStep("configure cloud-init to keep the host name", _put_file(CLOUD, CLOUD_TEXT, None, "644"))
    hosts = with_name(seen.hosts, node, seen.name)
    if hosts != seen.hosts:
        yield BootstrapStep(f"let {node} stand for itself in {HOSTS}", _put_file(HOSTS, hosts, seen.hosts, "644"))
    if not all(is_called(name, node) for name in (seen.name, seen.static_name)):
        yield BootstrapStep(f"call it {node} instead of {seen.name}", f"{BEGIN}hostnamectl set-hostname {node} >&2")


def is_called(name: str, node: str) -> bool:
    """Return whether a host name is that of the node, with its domain or without."""
    return node in (name, name.partition(".")[0])


def with_name(hosts: bytes, node: str, old: str) -> bytes:
    """/etc/hosts with the node's name in it: where the old one stood for 127.0.1.1, or on a line of its own. Unchanged
    when some line has the name already."""
    lines = hosts.splitlines(keepends=True)
    entries = [line.partition(b"#")[0].split() for line in lines]
    if any(node.encode() in entry[1:] for entry in entries):
        return hosts
    for number, entry in enumerate(entries):
        if entry[:1] == [b"127.0.1.1"] and old.encode() in entry[1:]:
            word = rb"(?<=\s)" + re.escape(old.encode()) + rb"(?=\s|#|$)"
            lines[number] = re.sub(word, node.encode(), lines[number], count=1)
            return b"".join(lines)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    return b"".join([*lines, f"127.0.1.1 {node}\n".encode()])


def _put_file(path: str, content: bytes, before: bytes | None, mode: str, check: str = ":") -> str:
    """The script that writes a file of root's: under another name, checked there, then in one step.

    `before`: what it must still hold; None when it is ours alone.
    """
    folder, _, name = path.rpartition("/")
    same = ":"
    if before is not None:
        digest = hashlib.sha256(before).hexdigest()
        same = f"{{ cat {path} 2>/dev/null || :; }} | sha256sum | grep -q '^{digest} '"
        same += " || { echo 'another program is writing this file; run again' >&2; exit 1; }"
    return (
        f"{BEGIN}new=$(mktemp {folder}/.{name}.XXXXXX); trap 'rm -f \"$new\"' EXIT\n"
        f'{_base64_writer(content)}\nchown 0:0 "$new"; chmod {mode} "$new"; sync "$new"\n{check}\n{same}\n'
        f'mv -fT "$new" {path}'
    )


def _base64_writer(content: bytes, append: bool = False) -> str:
    return f'printf %s {base64.b64encode(content).decode()} | base64 -d {">>" if append else ">"} "$new"'


def _content_words(content: bytes) -> set[str]:
    lines = content.decode("utf-8", "replace").splitlines()
    return {word for line in lines if not line.lstrip().startswith("#") for word in line.split()}


def _where_text(name: str) -> str:
    return {"home": "the home", "folder": ".ssh", "authorized": ".ssh/authorized_keys"}[name]


def _check_plain_path(path: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._/@+-]*", path):
        raise BootstrapError("its user has a strange home")
    return path


def _quoted_word(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
