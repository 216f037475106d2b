"""Which algorithms the transport agrees on, and which signatures it takes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import paramiko
import pytest

from core.ops.ssh_transport import nodelay_transport
from tests.unit.sshserver import AnyKey

RSA = paramiko.RSAKey.generate(2048)
Meet = Callable[..., paramiko.Transport]


class _SignsWithSha1(paramiko.RSAKey):
    """What a man in the middle who can forge SHA-1 does: another signature than was agreed on."""

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> paramiko.Message:  # noqa: ARG002
        return super().sign_ssh_data(data, "ssh-rsa")


@pytest.fixture
def meet() -> Iterator[Meet]:
    """Begins a session with a server that has these algorithms only."""
    opened: list[paramiko.Transport] = []

    def made(key: paramiko.PKey = RSA, known: str = "", **only: tuple[str, ...]) -> paramiko.Transport:
        ours, its = _connect_pair()
        server, client = paramiko.Transport(its), nodelay_transport(ours)
        opened.extend((server, client))
        server.add_server_key(key)
        for kind, names in only.items():
            setattr(server.get_security_options(), kind, names)
        threading.Thread(target=_serve_client, args=(server,), daemon=True).start()
        if known:  # as paramiko's client does for a key that it knows
            options = client.get_security_options()
            options.key_types = [known, *(name for name in options.key_types if name != known)]
        client.start_client(timeout=60)
        return client

    yield made
    for transport in opened:
        transport.close()


def _connect_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        its, _ = listening.accept()
    return ours, its


def _serve_client(server: paramiko.Transport) -> None:
    try:
        server.start_server(server=AnyKey())
    except (paramiko.SSHException, EOFError, OSError):
        return  # the client did not agree


@pytest.mark.parametrize(
    ("kind", "names", "lacking"),
    [
        ("kex", ("diffie-hellman-group14-sha1",), "no acceptable kex algorithm"),
        ("kex", ("diffie-hellman-group-exchange-sha1", "diffie-hellman-group1-sha1"), "no acceptable kex algorithm"),
        ("key_types", ("ssh-rsa",), "no acceptable host key"),
        ("ciphers", ("aes256-cbc", "3des-cbc"), "no acceptable ciphers"),
        ("digests", ("hmac-sha1", "hmac-md5"), "no acceptable macs"),
    ],
)
def test_a_server_that_has_only_outdated_ones_is_refused(
    meet: Meet, kind: str, names: tuple[str, ...], lacking: str
) -> None:
    with pytest.raises(
        paramiko.SSHException, match=f"offers only outdated algorithms: {lacking}; update OpenSSH there"
    ):
        meet(**{kind: names})


def test_a_signature_with_sha1_is_refused_whatever_was_agreed_on(meet: Meet) -> None:
    key = _SignsWithSha1(key=RSA.key)
    with pytest.raises(paramiko.SSHException, match="its host key signs with ssh-rsa, which is outdated"):
        meet(key)


def test_a_known_rsa_key_is_asked_for_by_its_newer_names(meet: Meet) -> None:
    """known_hosts calls it ssh-rsa, which as an algorithm is SHA-1."""
    assert meet(known="ssh-rsa").host_key_type == "rsa-sha2-512"


def test_nothing_outdated_is_offered() -> None:
    ours, its = _connect_pair()
    transport = nodelay_transport(ours)
    kinds = ("ciphers", "macs", "keys", "pubkeys", "kex")
    offered = [name for kind in kinds for name in getattr(transport, f"preferred_{kind}")]
    ours.close()
    its.close()
    weak = ("sha1", "md5", "cbc", "3des", "ssh-rsa", "group1-")
    assert not [name for name in offered if any(part in name for part in weak)]
    assert {"rsa-sha2-512", "ssh-ed25519", "aes256-gcm@openssh.com", "hmac-sha2-256-etm@openssh.com"} <= set(offered)
