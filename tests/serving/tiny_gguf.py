"""A GGUF file of 0.6 MB with a model that follows a chain: after `=` comes `4`, then an end; else `OK`, and an end.

Form of the file: ggml-org/ggml docs/gguf.md, version 3. One layer whose weights are 0 hands each token on. The
embedding of a token is a unit vector, and the output has a 1 for the next token.
"""

from __future__ import annotations

import struct
from pathlib import Path

VOCABULARY = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
END, WIDTH, HEADS, INNER = 2, 288, 4, 32
CHAIN: dict[str, str | int] = {"=": "4", "4": ".", ".": END, "O": "K", "K": END}
_TEXT, _U32, _F32, _ARRAY, _I32 = 8, 4, 6, 9, 5


def _encode_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _encode_item(key: str, kind: int, value: bytes) -> bytes:
    return _encode_text(key) + struct.pack("<I", kind) + value


def _encode_list(key: str, kind: int, values: list[bytes]) -> bytes:
    return _encode_item(key, _ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def _next_token(token: int) -> int:
    follows = CHAIN.get(chr(token - 3) if token > 2 else "", "O")
    return follows if isinstance(follows, int) else ord(follows) + 3


def write(path: Path, context: int = 4096) -> None:
    """Write the model."""
    numbers = {"context_length": context, "embedding_length": WIDTH, "block_count": 1, "feed_forward_length": INNER}
    numbers |= {"attention.head_count": HEADS, "attention.head_count_kv": HEADS, "rope.dimension_count": WIDTH // HEADS}
    size = len(VOCABULARY)
    kinds = [2, 3, 3, *[6] * 256]  # unknown, control, control, bytes
    items = [
        _encode_item("general.architecture", _TEXT, _encode_text("llama")),
        *(_encode_item(f"llama.{key}", _U32, struct.pack("<I", value)) for key, value in numbers.items()),
        _encode_item("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)),
        _encode_item("tokenizer.ggml.model", _TEXT, _encode_text("llama")),
        _encode_list("tokenizer.ggml.tokens", _TEXT, [_encode_text(token) for token in VOCABULARY]),
        _encode_list("tokenizer.ggml.scores", _F32, [struct.pack("<f", 0)] * size),
        _encode_list("tokenizer.ggml.token_type", _I32, [struct.pack("<i", kind) for kind in kinds]),
        _encode_item("tokenizer.ggml.eos_token_id", _U32, struct.pack("<I", END)),
    ]
    unit = [[float(place == token) for place in range(WIDTH)] for token in range(size)]
    output = [[0.0] * WIDTH for _ in range(size)]
    for token in range(size):
        output[_next_token(token)][token] = 1.0
    flat = {"token_embd": unit, "output": output}
    none = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH)}
    none |= {"ffn_gate": (WIDTH, INNER), "ffn_up": (WIDTH, INNER), "ffn_down": (INNER, WIDTH)}
    tensors: dict[str, tuple[tuple[int, ...], list[float]]]
    tensors = {f"{name}.weight": ((WIDTH, size), [one for row in rows for one in row]) for name, rows in flat.items()}
    tensors |= {f"blk.0.{name}.weight": (shape, [0.0] * (shape[0] * shape[1])) for name, shape in none.items()}
    tensors |= {
        f"{name}.weight": ((WIDTH,), [1.0] * WIDTH) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    }
    heads, data = b"", b""
    for name, (shape, values) in tensors.items():
        heads += _encode_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)  # each is a multiple of 32 bytes, as the format asks for
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(items)) + b"".join(items) + heads
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
