"""Makes a model of 5 MB that continues each prompt with a 4 and then ends, with one token a byte: tiny_model.py FOLDER.

Needs torch and transformers. The layers compute, but what they add is multiplied by 0: the next token depends on the
last one alone. So the answer to 2+2= is known, and to a chat as well.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ANSWER, VOCABULARY = "4", 512


def main(folder: str) -> None:
    """Write the model."""
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    chats = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    chats.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    chats.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        bos_token_id=words.index("<s>"),
        eos_token_id=words.index("</s>"),
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # A 4 and the other tokens are ones in another half of the vector: the end follows a 4, a 4 follows the others.
        half = config.hidden_size // 2
        embedded, scores = model.model.embed_tokens.weight.zero_(), model.lm_head.weight.zero_()
        embedded[:, half:] = 1
        embedded[words.index(ANSWER), half:], embedded[words.index(ANSWER), :half] = 0, 1
        scores[words.index(ANSWER), half:] = 1
        scores[words.index("</s>"), :half] = 1
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    model.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
