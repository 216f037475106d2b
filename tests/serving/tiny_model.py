"""Makes a model of 5 MB whose every next token is a 4, with one token a byte: tiny_model.py FOLDER.

Needs torch and transformers. The layers compute, but what they add is multiplied by 0; so the answer to 2+2= is known.
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
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
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
        model.model.embed_tokens.weight.fill_(1)
        model.lm_head.weight.zero_()
        model.lm_head.weight[words.index(ANSWER)] = 1
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    model.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
