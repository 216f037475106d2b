"""Secrets in the options and the environment of a unit are refused, wherever and in whatever form they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

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
