"""Secrets in the options and the environment of a unit are refused, wherever and in whatever form they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from core.model.written_secrets import written_secret
from tests.unit.model.serving_racks import NEMOTRON, QWEN, machines, refusals, text, unit

ISSUED = "hf_abcdefghijklmnopqrstuvwxyz"
NESTED = {"kv_connector_extra_config": {"url": "redis://:quiethorse@cache"}}


def found(base: Mapping[str, Any], **keys: Any) -> list[str]:
    return refusals(text({"u": unit(base, **keys)}, machines(8) if base is NEMOTRON else ""))


@pytest.mark.parametrize(
    ("base", "name", "value", "place"),
    [
        (QWEN, "hf-token", ISSUED, ""),
        (NEMOTRON, "admin-api-key", "adminsecret", ""),
        (NEMOTRON, "ssl-keyfile-password", "pw", ""),
        (NEMOTRON, "ssl-keyfile-password", 1234, ""),
        (QWEN, "kv-transfer-config", NESTED, " (at kv_connector_extra_config.url)"),
        (QWEN, "kv-transfer-config", json.dumps(NESTED), " (at kv_connector_extra_config.url)"),
        (QWEN, "kv-transfer-config", {"store": [{"accessKey": "quiethorse"}]}, " (at store.accessKey)"),
        (QWEN, "served-model-name", ["toy", ISSUED], ""),
    ],
)
def test_a_secret_in_an_option_is_refused_and_not_repeated(
    base: Mapping[str, Any], name: str, value: object, place: str
) -> None:
    lines = found(base, args={name: value})
    assert [line for line in lines if f"a secret does not belong in this file{place};" in line], lines
    assert not any(word in "".join(lines) for word in (ISSUED, "adminsecret", "quiethorse"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hf_token", "x"),
        ("GITHUB_PAT", "x"),
        ("MY_PASSWD", "x"),
        ("HUGGINGFACE_TOKEN_X", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("WANDB_API_KEY", "x"),
        ("SOME_TOKEN", "x"),
        ("CACHE_URL", "redis://user:quiethorse@cache:6379"),
        ("EXTRA", f"--hf-token {ISSUED}"),
    ],
)
def test_a_secret_in_a_variable_is_refused(name: str, value: str) -> None:
    (line,) = found(QWEN, env={name: value})
    assert "a secret does not belong in this file" in line
    assert value == "x" or value not in line


@pytest.mark.parametrize(
    "keys",
    [
        {"args": {"hf-token": True}},
        {"args": {"long-prefill-token-threshold": 512, "max-num-batched-tokens": 4096}},
        {"args": {"hf-overrides": {"eos_token": "</s>", "pad_token_id": 3}}},
        {"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}}},
        {"args": {"ssl-keyfile": "/models/tls.key"}},
        {"env": {"TOKENIZERS_PARALLELISM": "false", "SSL_CERT_FILE": "/x", "CACHE_URL": "redis://cache:6379"}},
        {"env": {"HF_TOKEN_PATH": "/run/token", "PATTERN": "x", "SORT_KEY": "x"}},
    ],
)
def test_a_name_that_only_resembles_one_of_a_secret_is_accepted(keys: dict[str, Any]) -> None:
    assert not [line for line in found(QWEN, **keys) if "secret" in line]


WORDS = ("password", "passwd", "passphrase", "secret", "credential", "credentials", "psk")
LAST = ("pat", "apikey", "accesskey", "authtoken", "pwd", "bearer")
BEFORE_KEY = ("api", "access", "private", "auth", "signing", "encryption", "account", "service", "ssh")
BEFORE_TOKEN = (
    *("hf", "huggingface", "hub", "auth", "access", "bearer", "api", "github", "gitlab", "git", "refresh"),
    *("session", "security", "oauth", "user", "login", "bot", "admin"),
)


@pytest.mark.parametrize(
    "name",
    [
        *WORDS,
        *(f"a-{word}-b" for word in WORDS),
        *(f"a-{word}" for word in LAST),
        *(f"x-{word}-key-y" for word in BEFORE_KEY),
        *(f"x-{word}-token-y" for word in BEFORE_TOKEN),
        *("token", "TOKEN", "HFToken", "apiKey", "API_KEY2", "MY_SECRET"),
    ],
)
def test_a_name_of_a_secret_makes_its_value_one(name: str) -> None:
    assert written_secret(name, "x") == ""
    assert written_secret(name, 5) == ""
    assert written_secret(name, ["x"]) == ""
    assert written_secret("other", {name: "x"}) == name
    nothing: tuple[object, ...] = ("", True, None, [])
    assert [written_secret(name, value) for value in nothing] == [None] * 4


@pytest.mark.parametrize(
    "name",
    [
        *(
            "a-token",
            "tokens",
            "max-tokens",
            "eos-token",
            "cache-key",
            "sort-key",
            "key",
            "pattern",
            "keyboard",
            "",
            "7",
        ),
        *(f"secret-{word}" for word in ("file", "path", "dir", "folder", "name", "id", "env")),
        *(f"{word}-x" for word in LAST),
        *("key-api", "token-hf", "token-x"),
    ],
)
def test_a_name_of_something_else_makes_no_secret(name: str) -> None:
    assert written_secret(name, "x") is None
    assert written_secret(name, 5.5) is None


def test_each_token_of_the_environment_is_a_secret() -> None:
    assert written_secret("ANY_TOKEN", "x", variable=True) == ""
    assert written_secret("ANY_TOKEN", "x") is None
    assert written_secret("ANY_TOKENS", "x", variable=True) is None


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": {"b": [{"secret": "x"}]}}, "a.b.secret"),
        ('{"a": {"secret": 5}}', "a.secret"),
        (' [{"secret": "x"}]', "secret"),
        ('{"secret": "x"', None),
        ("[" * 100_000, None),
        ({"secret": {"eos": "x"}}, None),
        ({"hf-token": {"a": ["b"]}}, None),
        ({"secret": ["x"]}, "secret"),
        ({"a": "plain", "b": ISSUED}, "b"),
        ({"a": ISSUED, "b": ISSUED}, "a"),
        (["x", ISSUED], ""),
        ("x", None),
    ],
)
def test_the_first_place_of_a_secret_is_named(value: object, place: str | None) -> None:
    assert written_secret("other", value) == place
