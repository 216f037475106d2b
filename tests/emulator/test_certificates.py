"""/certificate: templates, signing, who shows what, and that keys stay where they belong."""

from __future__ import annotations

import hashlib
import socket
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from lab import certificate
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, attributes, trap
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until


def shown(port: int) -> x509.Certificate:
    """The certificate that a TLS port shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain) as connection,
    ):
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)


def fingerprint(port: int) -> str:
    return hashlib.sha256(shown(port).public_bytes(Encoding.DER)).hexdigest()


def make(client: RawClient, name: str, *words: str, sign: tuple[str, ...] = ()) -> list[list[str]]:
    """Add a template on an elliptic curve, which is quick, and sign it."""
    assert client.ask("/certificate/add", f"=name={name}", f"=common-name={name}", "=key-size=prime256v1", *words)
    return client.ask("/certificate/sign", f"=number={name}", *sign)


def test_the_configured_certificate_is_there_and_shown(shared: Crs812Process, raw: RawClient) -> None:
    row = one(raw, "/certificate", "?name=api-ssl")
    assert (row["fingerprint"], row["private-key"]) == (shared.fingerprint, "true")
    assert "configured" not in row
    assert fingerprint(shared.tls_port) == shared.fingerprint


def test_a_template_has_defaults_and_no_fingerprint(raw: RawClient) -> None:
    raw.ask("/certificate/add", "=name=t", "=common-name=t.example")
    row = one(raw, "/certificate", "?name=t")
    wanted = {"key-size": "2048", "days-valid": "365", "digest-algorithm": "sha256", "private-key": "false"}
    assert {key: row[key] for key in wanted} == wanted
    assert row["key-usage"].startswith("digital-signature,key-encipherment,")
    assert "fingerprint" not in row
    raw.ask("/certificate/remove", "=numbers=t")
    assert rows(raw, "/certificate", "?name=t") == []


@pytest.mark.parametrize("size", ["2048", "prime256v1"])
def test_signing_tells_its_progress_and_makes_a_real_certificate(
    crs812: Crs812Process, connect: Connect, size: str
) -> None:
    client = connect(crs812)
    template = ["=name=web", "=common-name=10.0.0.2", "=key-usage=tls-server,digital-signature", f"=key-size={size}"]
    assert client.ask("/certificate/add", *template, "=days-valid=3650", "=subject-alt-name=IP:10.0.0.2,DNS:sw")
    answers = client.ask("/certificate/sign", "=number=web")
    assert [attributes(answer).get("progress") for answer in answers] == ["signing", "done", None]
    row = one(client, "/certificate", "?name=web")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=web")
    made = shown(crs812.tls_port)
    assert hashlib.sha256(made.public_bytes(Encoding.DER)).hexdigest() == row["fingerprint"]
    assert made.subject.rfc4514_string() == made.issuer.rfc4514_string() == "CN=10.0.0.2"
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 3650
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["sw"]
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_ca_signs_takes_its_name_and_takes_what_it_issued_with_it(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    make(client, "ca", "=key-usage=key-cert-sign,crl-sign")
    make(client, "leaf", sign=("=ca=ca", "=name=signed"))
    row = one(client, "/certificate", "?name=signed")
    assert (row["ca"], row["issued"], row["authority"]) == ("ca", "true", "true")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=signed")
    assert shown(crs812.tls_port).issuer.rfc4514_string() == "CN=ca"
    client.ask("/certificate/set", "=numbers=ca", "=name=root")
    assert one(client, "/certificate", "?name=signed")["ca"] == "root"
    client.ask("/certificate/remove", "=numbers=root")
    assert {found["name"] for found in rows(client, "/certificate")} == {"api-ssl"}


@pytest.mark.parametrize(
    ("command", "words", "reported"),
    [
        ("sign", ["=number=none"], "no such item"),
        ("sign", [], "missing =number="),
        ("sign", ["=number=api-ssl"], "already signed"),
        ("sign", ["=number=t", "=colour=red"], "unknown parameter colour"),
        ("sign", ["=number=t", "=ca=t"], "has no private key"),
        ("sign", ["=number=t", "=name=api-ssl"], "same name already exists"),
        ("add", ["=name=t", "=common-name=x"], "same name already exists"),
        ("add", ["=name=x"], "missing =common-name="),
        ("add", ["=name=x", "=common-name=x", "=key-size=512"], "input does not match any value of key-size"),
        ("add", ["=name=x", "=common-name=x", "=country=Germany"], "invalid certificate template"),
        ("add", ["=name=x", "=common-name=x", "=subject-alt-name=10.0.0.1"], "invalid certificate template"),
        ("add", ["=name=x", "=common-name=x", "=configured=yes"], "unknown parameter configured"),
        ("set", ["=numbers=api-ssl", "=common-name=y"], "can not change a signed certificate"),
    ],
)
def test_refusals(raw: RawClient, command: str, words: list[str], reported: str) -> None:
    raw.ask("/certificate/add", "=name=t", "=common-name=t")
    assert reported in trap(raw.ask(f"/certificate/{command}", *words))
    raw.ask("/certificate/remove", "=numbers=t")


def test_copying_a_certificate_makes_a_template(crs812: Crs812Process, connect: Connect) -> None:
    assert connect(crs812).ask("/certificate/add", "=copy-from=api-ssl", "=name=copy")
    crs812.stop()
    row = one(connect(crs812.start()), "/certificate", "?name=copy")
    assert (row["common-name"], row["private-key"]) == ("crs812", "false")


def test_safe_mode_leaves_certificates_alone(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    make(client, "kept")
    client.ask("/system/identity/set", "=name=within")
    client.ask("/safe-mode/unroll")
    assert one(client, "/certificate", "?name=kept")["private-key"] == "true"
    assert one(client, "/system/identity")["name"] == "MikroTik"


def test_a_crash_in_safe_mode_keeps_certificates_and_nothing_else(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    make(client, "kept")
    client.ask("/system/identity/set", "=name=within")
    before = one(client, "/certificate", "?name=kept")["fingerprint"]
    crs812.kill()
    client = connect(crs812.start())
    assert one(client, "/certificate", "?name=kept")["fingerprint"] == before
    assert one(client, "/system/identity")["name"] == "MikroTik"


def test_keys_are_private_files_and_nowhere_else(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    make(client, "web")
    folder = crs812.config.state.with_name("state.json.certificates")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = sorted(folder.iterdir())
    assert len(kept) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    others = [path for path in crs812.folder.iterdir() if path.is_file() and path.name != "key.pem"]
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in others)
    client.ask("/certificate/remove", "=numbers=web")
    assert len(list(folder.iterdir())) == 1
    assert crs812.stop() == 0
    crs812.start("--factory")
    assert len(list(folder.iterdir())) == 1


def test_a_renewed_configured_certificate_is_shown_after_a_restart(crs812: Crs812Process, connect: Connect) -> None:
    crs812.stop()
    assert crs812.config.tls_cert is not None
    assert crs812.config.tls_key is not None
    certificate.make("renewed", crs812.config.tls_cert, crs812.config.tls_key)
    crs812.start()
    assert fingerprint(crs812.tls_port) == certificate.fingerprint(crs812.config.tls_cert) != crs812.fingerprint


def test_a_service_without_certificate_shakes_no_hands(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch(tls_cert=None, tls_key=None)
    client = connect(switch)
    assert one(client, "/ip/service", "?name=api-ssl", "?dynamic=false")["certificate"] == "none"
    with pytest.raises(ssl.SSLError):
        shown(switch.tls_port)
    make(client, "api")
    assert client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=api") == [["!done"]]
    assert fingerprint(switch.tls_port) == one(client, "/certificate")["fingerprint"]


def test_a_service_takes_only_certificates_with_a_key(raw: RawClient) -> None:
    raw.ask("/certificate/add", "=name=t", "=common-name=t")
    no_match = "input does not match any value of certificate"
    assert trap(raw.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=t")) == no_match
    assert trap(raw.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=nowhere")) == no_match
    assert trap(raw.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=api-ssl,api-ssl")) == no_match
    assert trap(raw.ask("/ip/service/set", "=numbers=api", "=certificate=api-ssl")) == "unknown parameter certificate"
    raw.ask("/certificate/remove", "=numbers=t")


def test_a_removed_certificate_leaves_its_service_without_tls(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/certificate/set", "=numbers=api-ssl", "=name=old")
    assert one(client, "/ip/service", "?name=api-ssl", "?dynamic=false")["certificate"] == "old"
    client.ask("/certificate/remove", "=numbers=old")
    assert one(client, "/ip/service", "?name=api-ssl", "?dynamic=false")["certificate"] == "*1"
    with pytest.raises(ssl.SSLError):
        shown(crs812.tls_port)


def test_only_tls_1_2_on_demand(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)

    def spoken() -> str | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", crs812.tls_port), timeout=60)
        with context.wrap_socket(plain) as connection:
            return connection.version()

    assert spoken() == "TLSv1.3"
    client.ask("/ip/service/set", "=numbers=api-ssl", "=tls-version=only-1.2")
    assert spoken() == "TLSv1.2"


def test_a_long_signing_keeps_no_one_waiting(crs812: Crs812Process, connect: Connect) -> None:
    slow, other = connect(crs812), connect(crs812)
    slow.ask("/certificate/add", "=name=big", "=common-name=big", "=key-size=4096")
    slow.send("/certificate/sign", "=number=big", ".tag=s")
    assert attributes(slow.read())["progress"] == "signing"
    assert one(other, "/system/identity")["name"] == "MikroTik"
    until(lambda: "fingerprint" in one(other, "/certificate", "?name=big"))


def test_a_user_who_may_only_read_signs_nothing(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/certificate/add", "=name=t", "=common-name=t")
    client.ask("/user/add", "=name=looker", "=group=read", "=password=look")
    looker = RawClient(crs812.plain_port)
    looker.login("looker", "look")
    assert trap(looker.ask("/certificate/sign", "=number=t")) == "not enough permissions (9)"
    looker.close()
