"""The word-length code, by the manual's table and by round trips."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.routeros_emulator.codec import ProtocolError, encode_length, encode_sentence, length_bytes, read_sentence
from tests.emulator.raw_client import length

WORDS = st.lists(st.text(min_size=1, max_size=300), max_size=8)


@pytest.mark.parametrize(
    ("size", "code"),
    [
        (0, "00"),
        (0x7F, "7f"),
        (0x80, "8080"),
        (0x3FFF, "bfff"),
        (0x4000, "c04000"),
        (0x1FFFFF, "dfffff"),
        (0x200000, "e0200000"),
        (0xFFFFFFF, "efffffff"),
        (0x10000000, "f010000000"),
        (0xFFFFFFFF, "f0ffffffff"),
    ],
)
def test_lengths_at_the_edges(size: int, code: str) -> None:
    assert encode_length(size).hex() == code


@given(st.integers(0, 0xFFFFFFFF))
def test_lengths_agree_with_another_writing_of_the_table(size: int) -> None:
    assert encode_length(size) == length(size)


@given(st.integers(0, 0xFFFFFFFF))
def test_a_length_is_read_back(size: int) -> None:
    code = encode_length(size)
    more, start = length_bytes(code[0])
    assert more == len(code) - 1
    assert int.from_bytes(bytes([start]) + code[1:], "big") == size


@pytest.mark.parametrize("size", [-1, 0x100000000])
def test_impossible_lengths_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="word cannot"):
        encode_length(size)


@pytest.mark.parametrize("first", range(0xF8, 0x100))
def test_control_bytes_are_refused(first: int) -> None:
    with pytest.raises(ProtocolError, match="reserved"):
        length_bytes(first)


@given(WORDS)
def test_sentences_come_back(words: list[str]) -> None:
    assert read(encode_sentence(words)) == words


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=4))
def test_bytes_that_are_no_text_survive(words: list[bytes]) -> None:
    data = b"".join(length(len(word)) + word for word in words) + b"\x00"
    assert encode_sentence(read(data)) == data


@pytest.mark.parametrize("data", [b"\xf0\xff\xff\xff\xff", b"\xe2\x00\x00\x00"])
def test_a_word_too_long_is_refused_before_it_is_read(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="longer"):
        read(data)


def test_a_cut_off_sentence_is_the_end() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        read(b"\x05/log")


def read(data: bytes) -> list[str]:
    async def feed() -> list[str]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await read_sentence(reader)

    return asyncio.run(feed())
