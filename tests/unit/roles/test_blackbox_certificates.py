"""The CA of a rack and the certificates of its nodes, judged by the real openssl as well."""

from __future__ import annotations

import base64
import datetime
import stat
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
from cryptography import x509

from core.util import certificate_builder
from roles.blackbox import certificate_authority, stream_apply
from roles.blackbox.certificate_authority import CERTIFICATE, KEY, RackAuthority, node_fault
from sparkrack.discovery.write_rack_file import SECRETS
from tests.unit.ops.shells import run

ADDRESS = "10.77.0.11"


def openssl(*words: str | Path, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["openssl", *words], input=stdin, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def key(folder: Path) -> bytes:
    """A key, made by the command that a node runs; returns its public half."""
    done = run(stream_apply._key_script(), folder)
    assert done.returncode == 0, done.stderr
    return openssl("pkey", "-in", folder / "etc/sparkrack/blackbox/node.key", "-pubout", "-outform", "DER")


@pytest.fixture
def public(tmp_path: Path) -> bytes:
    """The public key of a node."""
    (tmp_path / "node/etc").mkdir(parents=True)
    return key(tmp_path / "node")


@pytest.fixture
def authority(tmp_path: Path) -> RackAuthority:
    """A CA that was just made."""
    folder = tmp_path / "rack"
    folder.mkdir()
    RackAuthority(folder, "two").make()
    return RackAuthority(folder, "two")


def fault(authority: RackAuthority, public: bytes, pem: bytes | None) -> str:
    return node_fault(pem, authority.pem, public, "spark1", ADDRESS)


def test_the_key_of_a_node_is_private_and_stays_whole(tmp_path: Path, public: bytes) -> None:
    file = tmp_path / "node/etc/sparkrack/blackbox/node.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["node.key"]
    assert public


def test_a_certificate_is_good_for_both_ends(tmp_path: Path, authority: RackAuthority, public: bytes) -> None:
    pem = authority.sign(public, "spark1", ADDRESS)
    (tmp_path / "node.pem").write_bytes(pem)
    for purpose in ("sslserver", "sslclient"):
        words = ("verify", "-x509_strict", "-CAfile", authority.folder / CERTIFICATE, "-purpose", purpose)
        openssl(*words, "-verify_ip", ADDRESS, "-verify_hostname", "spark1", tmp_path / "node.pem")
    assert fault(authority, public, pem) == ""
    assert b"CA:FALSE" in openssl("x509", "-in", tmp_path / "node.pem", "-noout", "-text")


def test_the_key_of_the_ca_is_private(authority: RackAuthority) -> None:
    assert stat.S_IMODE((authority.folder / KEY).stat().st_mode) == 0o600
    assert b"PRIVATE" not in (authority.folder / CERTIFICATE).read_bytes()


def test_another_node_cannot_sign(tmp_path: Path, authority: RackAuthority, public: bytes) -> None:
    """openssl refuses a chain over the certificate of a node."""
    (tmp_path / "node.pem").write_bytes(authority.sign(public, "spark1", ADDRESS))
    private = tmp_path / "node/etc/sparkrack/blackbox/node.key"
    request = openssl("req", "-new", "-key", private, "-subj", "/CN=spark9")
    words = ("x509", "-req", "-CA", tmp_path / "node.pem", "-CAkey", private, "-CAcreateserial", "-days", "9")
    (tmp_path / "forged.pem").write_bytes(openssl(*words, stdin=request))
    command = ["openssl", "verify", "-CAfile", str(authority.folder / CERTIFICATE)]
    done = subprocess.run(
        [*command, "-untrusted", str(tmp_path / "node.pem"), str(tmp_path / "forged.pem")],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0


def test_what_is_replaced(tmp_path: Path, authority: RackAuthority, public: bytes) -> None:
    other = tmp_path / "other"
    (other / "etc").mkdir(parents=True)
    foreign = RackAuthority(other, "two")
    foreign.make()
    stranger = key(other)
    pem = authority.sign(public, "spark1", ADDRESS)
    assert fault(authority, public, None) == "there is none"
    assert fault(authority, public, b"-----BEGIN CERTIFICATE-----\n") == "it cannot be read"
    assert fault(authority, public, authority.pem) == "it cannot be read"
    assert fault(authority, stranger, pem) == "it is not of the node's key"
    foreign_pem = RackAuthority(other, "two").sign(public, "spark1", ADDRESS)
    assert fault(authority, public, foreign_pem) == "it is not of the rack's CA"
    for name, address in (("spark2", ADDRESS), ("spark1", "10.77.0.99")):
        signed = authority.sign(public, name, address)
        assert fault(authority, public, signed) == f"it is not for spark1 at {ADDRESS}"
    assert node_fault(pem, None, public, "spark1", ADDRESS) == "the rack has no CA"


def test_a_certificate_is_renewed_before_its_end(
    authority: RackAuthority, public: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_authority, "NODE_DAYS", certificate_authority.RENEWED.days - 1)
    pem = authority.sign(public, "spark1", ADDRESS)
    end = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert fault(authority, public, pem) == f"it ends on {end:%Y-%m-%d}"
    monkeypatch.setattr(certificate_authority, "NODE_DAYS", certificate_authority.RENEWED.days + 1)
    assert fault(authority, public, authority.sign(public, "spark1", ADDRESS)) == ""


def test_a_certificate_that_is_not_yet_valid_is_replaced(
    authority: RackAuthority, public: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine that signed it was ahead: openssl on the nodes refuses it."""

    class Ahead(datetime.datetime):
        """A clock that is 10 days ahead."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Ahead:
            return cls.fromtimestamp(datetime.datetime.now(tz).timestamp() + 10 * 86400, tz)

    with monkeypatch.context() as ahead:
        ahead.setattr(certificate_authority, "datetime", Ahead)
        ahead.setattr(certificate_builder, "datetime", Ahead)
        pem = authority.sign(public, "spark1", ADDRESS)
        assert fault(authority, public, pem) == ""
    begin = x509.load_pem_x509_certificate(pem).not_valid_before_utc
    wanted = f"it is valid from {begin:%Y-%m-%d %H:%M} UTC on, which is later than now"
    assert fault(authority, public, pem) == wanted


def test_no_certificate_outlives_the_ca(
    authority: RackAuthority, public: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_authority, "NODE_DAYS", 2 * certificate_authority.CA_DAYS)
    pem = authority.sign(public, "spark1", ADDRESS)
    ca = x509.load_pem_x509_certificate(authority.pem or b"")
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc == ca.not_valid_after_utc


def test_a_ca_that_is_about_to_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_authority, "CA_DAYS", certificate_authority.RENEWED.days - 1)
    RackAuthority(tmp_path, "two").make()
    since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    with pytest.raises(ValueError, match=f"has to be replaced since {since:%Y-%m-%d}.* remove blackbox-ca.pem and"):
        _ = RackAuthority(tmp_path, "two").pem


@pytest.mark.parametrize(
    ("missing", "trusts", "reported"),
    [
        ((), False, ""),
        ((KEY,), False, "blackbox-ca.key is missing, and the node needs a certificate; copy it from the machine that"),
        ((CERTIFICATE,), False, "blackbox-ca.pem is missing and blackbox-ca.key is there; copy it from the machine"),
        ((CERTIFICATE, KEY), True, "the node has a certificate of the rack's CA, and"),
        ((CERTIFICATE, KEY), False, ""),
    ],
)
def test_whether_a_run_can_sign(
    authority: RackAuthority, missing: tuple[str, ...], trusts: bool, reported: str
) -> None:
    for name in missing:
        (authority.folder / name).unlink()
    found = RackAuthority(authority.folder, "two").signing_fault(trusts)
    assert reported in found
    assert bool(reported) == bool(found)


def test_a_key_that_cannot_be_used(authority: RackAuthority) -> None:
    file = authority.folder / KEY
    file.chmod(0o640)
    assert "can be read by other users (mode 640); chmod 600" in authority.signing_fault(False)
    file.chmod(0o600)
    file.write_text("-----BEGIN PRIVATE KEY-----\nsecret\n")
    found = authority.signing_fault(False)
    assert "is not the private key of a CA" in found
    assert "secret" not in found
    other = authority.folder / "other"
    other.mkdir()
    RackAuthority(other, "two").make()
    file.write_bytes((other / KEY).read_bytes())
    assert "is not the key of blackbox-ca.pem" in authority.signing_fault(False)


@pytest.mark.parametrize("public", [b"", b"no key", base64.b64decode("MCowBQYDK2VwAyEA" + "A" * 43 + "=")])
def test_no_certificate_for_another_kind_of_key(authority: RackAuthority, public: bytes) -> None:
    with pytest.raises(ValueError, match="key of the node"):
        authority.sign(public, "spark1", ADDRESS)


def test_git_ignores_the_key_of_the_ca() -> None:
    """`sparkrack init` writes these lines."""
    for name in (KEY, CERTIFICATE):
        assert any(fnmatch(name, pattern) for pattern in SECRETS), name
