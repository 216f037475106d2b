"""The lab's lines of known_hosts: its own are right, everybody else's stay."""

from __future__ import annotations

from lab.known_hosts import knows, merged


def test_a_new_file_has_the_labs_lines() -> None:
    assert merged("", {"10.0.0.1": "ssh-ed25519 A", "10.0.0.2": "ssh-ed25519 B"}) == (
        "10.0.0.1 ssh-ed25519 A\n10.0.0.2 ssh-ed25519 B\n"
    )


def test_other_lines_stay_as_they_are() -> None:
    text = "# mine\n10.0.0.9 ssh-rsa X\n10.0.0.1 ssh-ed25519 OLD\n10.0.0.1 ssh-rsa OLD\n"
    after = merged(text, {"10.0.0.1": "ssh-ed25519 A"})
    assert after == "# mine\n10.0.0.9 ssh-rsa X\n10.0.0.1 ssh-ed25519 A\n"
    assert merged(after, {"10.0.0.1": "ssh-ed25519 A"}) == after
    assert merged(text, {}) == text


def test_who_is_known() -> None:
    assert knows("\n10.0.0.1 ssh-ed25519 A\n", "10.0.0.1")
    assert not knows("10.0.0.11 ssh-ed25519 A\n# 10.0.0.1\n", "10.0.0.1")


def test_what_is_right_stays_where_it_is() -> None:
    text = "10.0.0.1 ssh-ed25519 A\n10.0.0.9 ssh-rsa X\n"
    assert merged(text, {"10.0.0.1": "ssh-ed25519 A"}) == text
    assert merged(text + "10.0.0.1 ssh-rsa OLD\n", {"10.0.0.1": "ssh-ed25519 A"}).splitlines() == [
        "10.0.0.9 ssh-rsa X",
        "10.0.0.1 ssh-ed25519 A",
    ]
