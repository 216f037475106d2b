"""Secrets: fetched as late as possible from where the reference says, and shown nowhere on the way."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from core.model import ConfigError, Rack, SecretError, SecretRef, load
from core.model.declared_secrets import (
    DeclaredSecret,
    declared_secrets,
    missing_file,
    position,
    secret_position,
    secret_problems,
    secret_value,
)
from tests.unit.model.racks import KEPT, SWITCH, changed, faults, loaded

VALUE = "hunter2-correct-horse"
FORMS = "name where it is kept: {env: VARIABLE}, {file: path} or {command: [program, argument]}"
PLACES = {
    "{env: CRS812_PASSWORD}": "15: switches.crs812.password",
    "{env: READER}": "27: switches.crs812.reader.password",
    "{env: SNMP_A}": "33: switches.crs812.snmp.authentication",
    "{env: SNMP_E}": "33: switches.crs812.snmp.encryption",
}
"""Every reference of a rack with all keys, and what a fault there begins with."""


def fetched(**reference: object) -> SecretStr:
    return SecretRef.model_validate(reference).resolve()


def refused(**reference: object) -> str:
    """The words of the refusal, after a look that nothing of the value is in it, nor in what led to it."""
    with pytest.raises(SecretError) as caught:
        fetched(**reference)
    assert VALUE not in "".join(traceback.format_exception(caught.value))
    assert VALUE not in repr((caught.value.__context__, vars(caught.value.__context__ or caught.value)))
    return str(caught.value)


def private(path: Path, content: bytes, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PASSWORD", VALUE)
    secret = fetched(env="SOME_PASSWORD")
    assert secret.get_secret_value() == VALUE
    assert VALUE not in f"{secret} {secret!r}"
    monkeypatch.setenv("SOME_PASSWORD", "")
    assert refused(env="SOME_PASSWORD") == "environment variable SOME_PASSWORD holds nothing; put the password there"
    monkeypatch.setitem(os.environb, b"SOME_PASSWORD", VALUE.encode() + b"\xe9")
    assert refused(env="SOME_PASSWORD") == (
        "environment variable SOME_PASSWORD does not give UTF-8 text; that is not a password"
    )
    monkeypatch.setenv("SOME_PASSWORD", VALUE * 4000)
    assert refused(env="SOME_PASSWORD") == (
        "environment variable SOME_PASSWORD gives more than 65536 bytes; that is not a password"
    )
    monkeypatch.delenv("SOME_PASSWORD")
    assert refused(env="SOME_PASSWORD") == "environment variable SOME_PASSWORD is not set; export it before the run"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_file(tmp_path: Path, end: str) -> None:
    path = private(tmp_path / "password", f" {VALUE} {end}".encode())
    assert fetched(file=path).get_secret_value() == f" {VALUE} "


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_file_that_others_may_open(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path / "password", VALUE.encode(), mode)
    assert refused(file=path) == f"file {path} is open to others; run chmod 600 on it"


def test_files_that_hold_no_password(tmp_path: Path) -> None:
    missing, fifo = str(tmp_path / "missing"), str(tmp_path / "fifo")
    os.mkfifo(fifo, 0o600)
    large = private(tmp_path / "large", VALUE.encode() * 10000)
    binary = private(tmp_path / "binary", VALUE.encode() + b"\xff")
    empty = private(tmp_path / "empty", b"\n")
    assert refused(file=missing).endswith("missing cannot be read: No such file or directory; check the path")
    assert refused(file=fifo) == f"file {fifo} is not a file; check the path"
    assert refused(file=str(tmp_path)) == f"file {tmp_path} is not a file; check the path"
    assert refused(file=large) == f"file {large} gives more than 65536 bytes; that is not a password"
    assert refused(file=binary) == f"file {binary} does not give UTF-8 text; that is not a password"
    assert refused(file=empty) == f"file {empty} holds nothing; put the password there"


def test_file_beside_the_rack_file(tmp_path: Path) -> None:
    rack = loaded(changed(SWITCH, ("{env: CRS812_PASSWORD}", "{file: secrets/switch}")))
    assert rack.switches["crs812"].password.file == rack.source.parent / "secrets/switch"


def test_command() -> None:
    program = sys.executable
    assert fetched(command=[program, "-c", f"print('{VALUE}')"]).get_secret_value() == VALUE
    # given to the program as it is: no shell reads it
    assert fetched(command=["printf", "%s", "$(id); 'x"]).get_secret_value() == "$(id); 'x"
    failing = f"import sys; print('{VALUE}', file=sys.stderr); print('{VALUE}'); sys.exit(3)"
    assert refused(command=[program, "-c", failing]) == f"command {program} ended with 3; run it by hand to see why"
    assert refused(command=["/nonexistent/pass", VALUE]) == (
        "command /nonexistent/pass cannot be started: No such file or directory; check its name"
    )
    assert refused(command=["a\0b", VALUE]).endswith("not a usable command line; check its name")


def test_a_command_that_prints_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.model.secrets._SECONDS", 60)
    pid = tmp_path / "pid"
    reported = refused(command=["sh", "-c", f"echo $$ > {pid}; exec yes"])
    assert reported == "command sh gives more than 65536 bytes; that is not a password"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_number_for_a_key_is_not_shown() -> None:
    found = faults(changed(SWITCH, ("{env: CRS812_PASSWORD}", "{0815.47: x}")))
    assert found[0].endswith(".password: the key is not a text to YAML; write it in quotes")
    assert "0815" not in "".join(found)


def test_command_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.model.secrets._SECONDS", 0.1)
    assert refused(command=["sleep", "60"]) == "command sleep did not end within 0.1 s; run it by hand to see why"


@pytest.mark.parametrize(
    ("reference", "path", "message"),
    [
        (VALUE, "", f"a password does not belong in this file; {FORMS}"),
        ("4711", "", f"a password does not belong in this file; {FORMS}"),
        (f"[{VALUE}]", "", f"a password does not belong in this file; {FORMS}"),
        (f"{{{VALUE}}}", "", f"is not one reference to a password; {FORMS}"),
        (f"{{evn: {VALUE}}}", "", f"is not one reference to a password; {FORMS}"),
        ("{}", "", f"is not one reference to a password; {FORMS}"),
        (f"{{env: A, file: {VALUE}}}", "", f"is not one reference to a password; {FORMS}"),
        ("{command: []}", "", f"names no program; {FORMS}"),
        (
            f"{{env: {VALUE}}}",
            ".env",
            "is not the name of an environment variable; write letters, digits and '_', like CRS812_PASSWORD",
        ),
        (f"{{command: {VALUE}}}", ".command", "this is not a list; write [...] or lines beginning with '- '"),
        (
            f"{{command: [pass, 4711, 4712, {VALUE}]}}",
            ".command",
            "this is a number to YAML; write it in quotes",
        ),
        (f"{{env: [{VALUE}]}}", ".env", "this is not a text; write one text"),
        (
            f"{{env: *{VALUE}}}",
            ".env",
            "is an alias (*), which a rack file does not know; write the value itself",
        ),
        ("{env: }", ".env", "is empty; give it a value or remove the key"),
    ],
)
@pytest.mark.parametrize(("held", "place"), PLACES.items())
def test_wrong_references_are_refused_without_a_word_of_them(
    held: str, place: str, reference: str, path: str, message: str
) -> None:
    found = faults(changed(KEPT, (held, reference)))
    assert found == [f"{place}{path}: {message}"]
    assert VALUE not in found[0]


@pytest.mark.parametrize(
    "edit", [f"{{{VALUE}: 1, {VALUE}: 2}}", f"{{{VALUE}: &{VALUE} 1}}", f"!{VALUE} x", f"'{VALUE}"]
)
@pytest.mark.parametrize("held", PLACES)
def test_faults_of_the_text_do_not_show_it_either(held: str, edit: str) -> None:
    found = faults(changed(KEPT, (held, edit)))
    assert found
    assert VALUE not in "".join(found)


@given(st.sampled_from(list("{}[]:,&*!|>'\"%@`#- \t\\\n?")).flatmap(lambda sign: st.lists(
    st.sampled_from([sign, " ", VALUE, ":", "{", "env"]), max_size=6).map("".join)))  # fmt: skip
def test_no_spelling_shows_it(reference: str) -> None:
    text = SWITCH.replace("{env: CRS812_PASSWORD}", f"{reference}{VALUE}")
    try:
        loaded(text)
    except ConfigError as error:
        reported = str(error)
    else:
        return
    for line in reported.splitlines():
        # what the signs have pushed out of `password:` is not a password any more, only a key of its own
        assert VALUE not in line or ".password" not in line


def test_only_one_reference_holds() -> None:
    with pytest.raises(ValidationError) as caught:
        SecretRef.model_validate({"env": "A", "file": VALUE})
    assert VALUE not in str(caught.value)


EVERYWHERE = changed(
    KEPT.replace("{env: CRS812_PASSWORD}", "{file: secrets/switch}").replace("{env: READER}", "{file: secrets/reader}"),
    (
        "\nfabric:\n",
        """
models:
  glm: {source: owner/GLM, token: {file: secrets/hub}}
  free: {source: owner/Free}
watch:
  notify: {webhook: {file: secrets/hook}, heartbeat: {file: "secrets/the url"}}
fabric:
""",
    ),
)
"""A rack with a secret in most places that may hold one."""
MISSING = {
    "switches.crs812.password": ("15", "secrets/switch", "bootstrap creates it"),
    "switches.crs812.reader.password": (
        "27",
        "secrets/reader",
        "create it: (umask 077; openssl rand -hex 24 > {file})",
    ),
    "models.glm.token": (
        "38",
        "secrets/hub",
        "put the token of the hub there: (umask 077; cat > {file})",
    ),
    "watch.notify.webhook": (
        "41",
        "secrets/hook",
        "put the URL or the password there: (umask 077; cat > {file})",
    ),
    "watch.notify.heartbeat": (
        "41",
        "secrets/the url",
        "put the URL or the password there: (umask 077; cat > '{file}')",
    ),
}
"""Place -> line, file, and what is to be done when the file is missing."""


@pytest.fixture
def everywhere(tmp_path: Path) -> Rack:
    (tmp_path / "rack.yaml").write_text(EVERYWHERE)
    return load(tmp_path / "rack.yaml")


def test_each_reference_of_a_rack_has_its_place_and_a_switch_s_password_is_made_by_bootstrap(everywhere: Rack) -> None:
    folder = everywhere.source.parent
    assert [(".".join(map(str, one.path)), str(one.ref), one.created) for one in declared_secrets(everywhere)] == [
        ("switches.crs812.password", f"file {folder}/secrets/switch", True),
        ("switches.crs812.reader.password", f"file {folder}/secrets/reader", False),
        ("switches.crs812.snmp.authentication", "environment variable SNMP_A", False),
        ("switches.crs812.snmp.encryption", "environment variable SNMP_E", False),
        ("models.glm.token", f"file {folder}/secrets/hub", False),
        ("watch.notify.webhook", f"file {folder}/secrets/hook", False),
        ("watch.notify.heartbeat", f"file {folder}/secrets/the url", False),
    ]


def test_a_reference_within_the_entries_of_a_section_is_found(tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").write_text(
        changed(
            KEPT,
            (
                "\nfabric:\n",
                (
                    "\nserving:\n  units: {}\n  gateway: {node: spark1, keys: {bob: {env: BOB}}, certificate: "
                    "{chain: gateway.pem, key: {file: gateway.key}}}\nfabric:\n"
                ),
            ),
        )
    )
    found = [(one.path, one.created) for one in declared_secrets(load(tmp_path / "rack.yaml"))]
    assert found[4:] == [
        (("serving", "gateway", "certificate", "key"), False),
        (("serving", "gateway", "keys", "bob"), False),
    ]


@pytest.mark.parametrize("place", MISSING)
def test_of_a_missing_file_its_place_and_the_command_that_makes_it_are_reported(everywhere: Rack, place: str) -> None:
    line, file, fix = MISSING[place]
    secret = next(one for one in declared_secrets(everywhere) if ".".join(map(str, one.path)) == place)
    path = everywhere.source.parent / file
    assert secret.missing
    why = f"file {path} does not exist; {fix.format(file=path)}"
    assert missing_file(secret) == why
    where = f"{everywhere.source}:{line}: {place}"
    assert secret_position(everywhere, secret.ref) == where
    assert list(secret_problems(everywhere, [secret.ref, secret.ref])) == [f"{where}: {why}"]
    with pytest.raises(ValueError, match="does not exist") as caught:
        secret_value(everywhere, secret.ref)
    assert str(caught.value) == f"{where}: {why}"
    path.parent.mkdir()
    private(path, VALUE.encode(), 0o640)
    assert not secret.missing
    assert list(secret_problems(everywhere, [secret.ref])) == [
        f"{where}: file {path} is open to others; run chmod 600 on it"
    ]
    path.chmod(0o600)
    assert list(secret_problems(everywhere, [secret.ref])) == []
    assert secret_value(everywhere, secret.ref) == VALUE


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        (("serving", "gateway", "certificate", "key"), "put the private key of the certificate there: (umask 077; cat"),
        (("serving", "units", "qwen", "key"), "create it: (umask 077; openssl rand -hex 24"),
    ],
)
def test_what_the_file_of_a_key_needs(tmp_path: Path, path: tuple[str, ...], fix: str) -> None:
    ref = SecretRef(file=tmp_path / "key")
    assert missing_file(DeclaredSecret(path, ref)) == f"file {tmp_path}/key does not exist; {fix} > {tmp_path}/key)"


def test_a_reference_that_the_rack_does_not_have_is_reported_without_a_place(everywhere: Rack) -> None:
    ref = SecretRef(env="SPARKRACK_OF_NOBODY")
    why = "environment variable SPARKRACK_OF_NOBODY is not set; export it before the run"
    assert list(secret_problems(everywhere, [ref])) == [why]
    assert secret_position(everywhere, ref) == "environment variable SPARKRACK_OF_NOBODY"
    with pytest.raises(ValueError, match="is not set") as caught:
        secret_value(everywhere, ref)
    assert str(caught.value) == why
    assert not DeclaredSecret(("x",), ref).missing


def test_a_place_in_a_file_that_cannot_be_read_has_no_line(tmp_path: Path) -> None:
    path = ("switches", "crs812", "password")
    file = tmp_path / "rack\n.yaml"
    assert position(file, path) == f"{tmp_path}/rack\\n.yaml: switches.crs812.password"
    file.write_text("a: 1\nswitches:\n  crs812:\n    password: {env: X}\n")
    assert position(file, path) == f"{tmp_path}/rack\\n.yaml:4: switches.crs812.password"
    file.write_bytes(b"\xff")
    assert position(file, path) == f"{tmp_path}/rack\\n.yaml: switches.crs812.password"


@pytest.mark.parametrize("size", [65536, 65537])
def test_a_secret_has_at_most_65536_bytes(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = private(tmp_path / "password", b"x" * size)
    monkeypatch.setenv("LONG", "x" * size)
    ways: list[dict[str, object]] = [{"file": path}, {"env": "LONG"}, {"command": ["cat", path]}]
    for reference in ways:
        if size == 65536:
            assert len(fetched(**reference).get_secret_value()) == size
        else:
            assert refused(**reference).endswith(" gives more than 65536 bytes; that is not a password")


def test_a_reference_is_named_by_its_kind_and_shown_so_in_host_data() -> None:
    for reference, shown in (
        ({"env": "A"}, "environment variable A"),
        ({"file": "/a"}, "file /a"),
        ({"command": ["pass", "x"]}, "command pass"),
    ):
        ref = SecretRef.model_validate(reference)
        assert (str(ref), ref.to_json()) == (shown, shown)
        assert SecretRef.model_validate(ref) is ref
    with pytest.raises(ValidationError):
        ref.env = "B"  # type: ignore[misc]
