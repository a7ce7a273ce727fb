"""Writes a language model and a tokenizer of a few kilobytes into a folder. Nothing is downloaded."""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

words = ["<unk>", "<eos>", "<pad>", "the", "cat", "sat", "on", "mat", *map(str, range(64))]
tokenizer = Tokenizer(
    models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
)
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<pad>", model_max_length=64
)
fast.save_pretrained(sys.argv[1])
config = GPT2Config(
    vocab_size=len(words), n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1
)
GPT2LMHeadModel(config).save_pretrained(sys.argv[1])
