"""The RouterOS API's word-length code: bytes to sentences and back (MikroTik manual, 'API')."""

from __future__ import annotations

import asyncio

#: Longest word taken from a client. RouterOS publishes no limit; without one a five-byte length
#: would let a client ask for 4 GiB of memory.
MAX_WORD = 16 * 1024 * 1024


class ProtocolError(Exception):
    """The peer sent bytes that are not an API sentence; the connection is of no further use."""


def encode_length(length: int) -> bytes:
    """Give the 1 to 5 byte code of a word's length in bytes; ValueError outside 0..2**32-1."""
    if length < 0:
        raise ValueError("a word cannot have a negative length")
    if length < 0x80:
        return bytes([length])
    if length < 0x4000:
        return (length | 0x8000).to_bytes(2, "big")
    if length < 0x200000:
        return (length | 0xC00000).to_bytes(3, "big")
    if length < 0x10000000:
        return (length | 0xE0000000).to_bytes(4, "big")
    if length < 0x100000000:
        return b"\xf0" + length.to_bytes(4, "big")
    raise ValueError("a word cannot be 4 GiB or longer")


def length_bytes(first: int) -> tuple[int, int]:
    """Say from a length's first byte how many bytes follow it, and what it adds to the length itself.

    Raises ProtocolError for 0xF8 and above, which the manual reserves for control bytes.
    """
    if first < 0x80:
        return 0, first
    if first < 0xC0:
        return 1, first & 0x3F
    if first < 0xE0:
        return 2, first & 0x1F
    if first < 0xF0:
        return 3, first & 0x0F
    if first < 0xF8:
        return 4, 0
    raise ProtocolError(f"reserved control byte 0x{first:02X}")


def encode_sentence(words: list[str]) -> bytes:
    """Encode words and the empty word that ends a sentence.

    Bytes that were not UTF-8 when they came in (surrogate escapes) go out as they were.
    """
    parts: list[bytes] = []
    for word in words:
        raw = word.encode("utf-8", "surrogateescape")
        parts += (encode_length(len(raw)), raw)
    return b"".join(parts) + b"\x00"


async def read_word(reader: asyncio.StreamReader) -> str:
    """Read one word. Raises ProtocolError, or IncompleteReadError when the peer is gone."""
    more, length = length_bytes((await reader.readexactly(1))[0])
    for byte in await reader.readexactly(more):
        length = (length << 8) | byte
    if length > MAX_WORD:
        raise ProtocolError(f"a word of {length} bytes is longer than {MAX_WORD}")
    return (await reader.readexactly(length)).decode("utf-8", "surrogateescape")


async def read_sentence(reader: asyncio.StreamReader) -> list[str]:
    """Read words up to the empty one. An empty sentence gives an empty list, which callers ignore."""
    words: list[str] = []
    total = 0
    while word := await read_word(reader):
        words.append(word)
        total += len(word)
        if total > MAX_WORD:
            raise ProtocolError(f"a sentence is longer than {MAX_WORD} bytes")
    return words
