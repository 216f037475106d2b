"""The node's own key pair: what was found of it, and what is to be done. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from roles.access.desired import NodeAccount, decode_file, public_key

NAME = "id_sparkrack"
KIND = "ssh-ed25519"
MODES = {"folder": "700", "private": "600", "public": "644", "authorized": "600"}
FORMS = {"folder": "directory", "private": "regular file", "public": "regular file", "authorized": "regular file"}


@dataclass(frozen=True)
class KeyFile:
    """A file or folder as `stat` shows it."""

    mode: str
    owner: str
    form: str


@dataclass(frozen=True)
class KeyPair:
    """Content of the account's folder. `derived`: the public key of the private one, None when the private key cannot
    be read; `public` and `authorized`: the content of the files, None for a missing file.
    """

    things: dict[str, KeyFile]
    derived: str | None
    public: bytes | None
    authorized: bytes | None

    @property
    def key(self) -> str | None:
        """The public key, if the pair can be used at all."""
        private = self.things.get("private")
        fit = private is not None and private.form == FORMS["private"]
        return self.derived if fit and self.derived and self.derived.startswith(f"{KIND} ") else None


def key_pair(listing: str, account: NodeAccount) -> KeyPair:
    """Parse the probe's answer about an account's folder, one item a line. Raises ValueError for any other line."""
    key = f"{account.folder}/{NAME}"
    paths = {account.folder: "folder", key: "private", f"{key}.pub": "public", entry(account): "authorized"}
    things: dict[str, KeyFile] = {}
    contents: dict[str, bytes] = {}
    derived = None
    for line in listing.splitlines():
        match line.split(" ", 4):
            case ["content", path, text] if path in paths:
                contents[paths[path]] = decode_file("access-keys", text)
            case ["derived", *_]:
                derived = _derive_public_key(line.removeprefix("derived "))
            case ["thing", mode, owner, path, form] if path in paths and mode.isdigit():
                # An empty file is a form of its own to `stat`.
                things[paths[path]] = KeyFile(mode, owner, form.replace("regular empty file", "regular file"))
            case _:
                raise ValueError(f"access-keys: unexpected probe output {line[:60]!r}")
    for name in ("folder", "authorized"):
        if name in things and things[name].form != FORMS[name]:
            path = account.folder if name == "folder" else entry(account)
            raise ValueError(f"access-keys: {path} is a {things[name].form} and is left alone")
    if ("authorized" in things) != ("authorized" in contents):
        raise ValueError(f"access-keys: the content of {entry(account)} is missing")
    return KeyPair(things, derived, contents.get("public"), contents.get("authorized"))


def entry(account: NodeAccount) -> str:
    """The file with the keys that are accepted."""
    return f"{account.folder}/authorized_keys"


def _derive_public_key(line: str) -> str | None:
    try:
        return public_key(line)
    except ValueError:
        return None


def public_line(key: str, node: str) -> bytes:
    """Return the public file of a pair."""
    return f"{key} sparkrack {node}\n".encode()


def misplaced(found: KeyPair, account: NodeAccount) -> dict[str, str]:
    """Return those of folder, private and public file with a wrong owner or mode, with the actual values."""
    return {
        name: f"{thing.mode} {thing.owner}"
        for name, thing in found.things.items()
        if (thing.mode, thing.owner) != (MODES[name], account.owner)
    }


def unusable(found: KeyPair) -> str | None:
    """Return why the pair cannot be used, or None."""
    if "private" not in found.things:
        return "there is none"
    if found.things["private"].form != FORMS["private"]:
        return f"the private key is a {found.things['private'].form}"
    if found.derived is None:
        return "the private key cannot be read without a passphrase, or is none"
    if found.key is None:
        return f"it is {found.derived.split(' ')[0]}, not {KIND}"
    return None


def duplicate_owner(node: str, ranks: list[str], keys: dict[str, str | None]) -> str | None:
    """Return the earlier node that has the same key: then this node's private key is a copy and is generated again."""
    own = keys.get(node)
    return next((name for name in ranks[: ranks.index(node)] if own and keys.get(name) == own), None)


def make(account: NodeAccount, node: str) -> str:
    """Shell text that makes the pair under a private name and then gives it its name, the private key first: a public
    one that is missing or of another key is made from it."""
    folder = shlex.quote(account.folder)
    return (
        f"umask 077; mkdir -p {folder}; {owned('folder', account)}; rm -rf {folder}/.{NAME}.*; "
        f"new=$(mktemp -d {folder}/.{NAME}.XXXXXX); trap 'rm -rf \"$new\"' EXIT; "
        f"ssh-keygen -q -t ed25519 -N '' -C {shlex.quote(f'sparkrack {node}')} -f \"$new/key\" < /dev/null; "
        f'chown {account.owner} "$new/key" "$new/key.pub"; chmod 600 "$new/key"; chmod 644 "$new/key.pub"; '
        f'sync "$new/key" "$new/key.pub"; mv -fT "$new/key" {folder}/{NAME}; '
        f'mv -fT "$new/key.pub" {folder}/{NAME}.pub; '
        f"sync {folder}"
    )


def owned(name: str, account: NodeAccount) -> str:
    """Shell text that gives the folder or the private key its owner and mode."""
    path = shlex.quote(account.folder if name == "folder" else f"{account.folder}/{NAME}")
    return f"chown {account.owner} {path}; chmod {MODES[name]} {path}"
