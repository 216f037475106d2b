"""What is removed from a text before it is kept or given away, and what stays."""

from __future__ import annotations

import base64
import json
import time

import pytest

from core.util.scrub import count_base64, declare, scrub
from sparkrack.support.bundle import rack_without_secrets

CANARY = "canaryXq7Zp2Lm9V"


@pytest.mark.parametrize(
    "text",
    [
        f"--password {CANARY}",
        f"--hf-token={CANARY}",
        f"docker run -e HF_TOKEN={CANARY} image",
        f"HUGGING_FACE_HUB_TOKEN: '{CANARY} {CANARY}'",
        f'{{"api_key": "{CANARY}", "x": 1}}',
        f'"{{\\"token\\": \\"{CANARY}\\"}}"',
        f"Authorization: Bearer {CANARY}",
        f"authorization: Basic {CANARY}=",
        f"curl -H 'Authorization: {CANARY}' url",
        f"sent bearer {CANARY}",
        f"downloading with hf_{CANARY}",
        f"nvapi-{CANARY} glpat-{CANARY} ghp_{CANARY}",
        f"https://user:{CANARY}@host/path",
        f"//nas/x /x cifs username=a,password={CANARY} 0 0",
        f"root:$6${CANARY}/abc:19000:0:99999:7:::",
        f"psk={CANARY}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
        f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKLa {CANARY} of ann",
        f"private-key={CANARY}",
        f"eyJhbGciOiJIUzI1NiJ9.{CANARY}.{CANARY}",
    ],
)
def test_secrets_by_their_form(text: str) -> None:
    found = scrub(text)
    assert CANARY not in found
    assert scrub(found) == found, "it stays as it is"


def test_json_stays_json() -> None:
    assert json.loads(scrub(json.dumps({"password": CANARY, "n": [1, {"token": CANARY}]}))) == {
        "password": "***",
        "n": [1, {"token": "***"}],
    }


@pytest.mark.parametrize(
    "text",
    [
        "spark1: ssh: exit 0, 0.012 s",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKLa",
        "sshd: Accepted publickey for ops from 10.77.0.1",
        "--password-env CRS812_PASSWORD --password-file ~/.secret",
        "/etc/ssh/sshd_config.d/00-sparkrack.conf sha256 " + "0f" * 32,
        "http://10.77.0.1:8080/v2/",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert scrub(text) == text
    assert text.startswith("ssh-ed25519") or count_base64(text) == text


def test_a_declared_secret_in_every_spelling() -> None:
    secret = 'my "dog"\n/and é'
    assert scrub(f"it is {secret}") == f"it is {secret}"
    declare(secret)
    for text in (secret, repr(secret), json.dumps(secret), "my%20%22dog%22%0A/and%20%C3%A9", 'only my "dog"'):
        assert "dog" not in scrub(f"it is {text}")


def test_contents_of_files_in_a_command() -> None:
    content = base64.b64encode(f"swap.img password {CANARY} ".encode() * 2).decode()
    for text in (f"echo '{content}' | base64 -d", f"x={content};", f"[{content}]"):
        assert content[8:30] not in count_base64(text)
        assert f"({len(content)} characters of base64)" in count_base64(text)


def test_a_rack_file_without_references_to_secrets() -> None:
    text = f"a:\n  password: {{command: [vault, --token, {CANARY}]}} # {CANARY}\n  user: ann\nb: [{{env: {CANARY}}}]\n"
    assert rack_without_secrets(text) == "a:\n  password: '***'\n  user: ann\nb:\n- '***'\n"


@pytest.mark.parametrize("word", ["y", "-", "-x", "token", "eyJ-", "ssh-", "Aa", "a.b_"])
def test_the_time_grows_with_the_length_and_not_with_its_square(word: str) -> None:
    """A log may have one word of many characters; 20000 of them took minutes."""
    text = word * (20_000 // len(word))
    began = time.process_time()
    assert scrub(text) == text
    assert time.process_time() - began < 20


def test_a_name_in_a_long_word_and_before_a_long_rest_is_found() -> None:
    for name in (f"{'x' * 500}_password", f"token_{'x' * 50}", "a-----token"):
        assert scrub(f"{name}=canary") == f"{name}=***"
    assert scrub("-----my-token canary") == "-----my-token ***"
