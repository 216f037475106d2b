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
        f"SMTP_PASS={CANARY}",
        f"MYSQL_PWD={CANARY} mysqldump",
        f"rclone --sftp-pass {CANARY} copy",
        f"//nas/x /x cifs username=a,pass={CANARY},vers=3 0 0",
        f"Server=db;Uid=a;Pwd={CANARY};",
        f"https://hooks.slack.com/services/T0/B0/{CANARY}",
        f"https://discord.com/api/webhooks/123/{CANARY}",
        f"https://discordapp.com/api/webhooks/123/{CANARY}",
        f"https://api.telegram.org/bot123456:{CANARY}/sendMessage",
        f"posted to https://ntfy.sh/{CANARY}: 200",
        f"https://acme.webhook.office.com/webhookb2/{CANARY}/IncomingWebhook/1",
        f"https://chat.example.org/hooks/{CANARY}",
        f"https://events.pagerduty.com/integration/{CANARY}/enqueue",
        f"https://hc-ping.com/{CANARY}/fail",
        f"https://nosnch.in/{CANARY}",
        f"https://maker.ifttt.com/trigger/x/with/key/{CANARY}",
        f"AIzaSyD-{CANARY}0123456789",
        f"tskey-auth-k1-{CANARY}",
        f"AGE-SECRET-KEY-1{CANARY.upper()}",
        f"https://x.blob.core.windows.net/a?sv=1&sig={CANARY}%3D&se=2",
        f"https://b.s3.amazonaws.com/k?X-Amz-Algorithm=A&X-Amz-Signature={CANARY}",
        f"https://storage.googleapis.com/k?X-Goog-Signature={CANARY}",
        f"Cookie: a=b; session={CANARY}; c=d",
        f"< Set-Cookie: id={CANARY}; Path=/",
        f"AccountName=a;AccountKey={CANARY};",
        f"PresharedKey = {CANARY}",
        f"tailscale up --authkey {CANARY}",
        f"curl -u ann:{CANARY} url",
        f"wget --user ann:{CANARY} url",
        f"sshpass -p {CANARY} ssh a",
        f"hvs.{CANARY} dckr_pat_{CANARY} gsk_{CANARY} pypi-{CANARY} npm_{CANARY}",
        f"sk_live_{CANARY} whsec_{CANARY} SG.{CANARY}.{CANARY} ya29.{CANARY}",
        f"root:$argon2id$v=19$m=65536,t=3,p=4${CANARY}:19000",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{CANARY}\n-----END PGP PRIVATE KEY BLOCK-----",
    ],
)
def test_secrets_by_their_form(text: str) -> None:
    found = scrub(text)
    assert CANARY.lower() not in found.lower()
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
        "bypass=on, compass: 3, 2 of 3 checks pass, passes: 12, docker run -u 1000:1000 --user 1000:1000",
        "curl -u ann url; grep -u 10:30 x; tar -p x; cp --preserve=signature",
        "https://github.com/o/r/blob/main/webhooks.md https://docs.example.org/hooks",
        "module verification failed: signature and/or required key missing",
        "sshd[12]: Connection closed; key-16 tskey npm_config",
    ],
)
def test_what_is_not_a_secret_stays(text: str) -> None:
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


@pytest.mark.parametrize(
    "word", ["y", "-", "-x", "token", "_pass", "http://x/hooks/", "a signature", "-u a", "eyJ-", "ssh-", "Aa", "a.b_"]
)
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
