"""Writes what `bert-base-cased`, `nyu-mll/glue` and the metric `glue` stand for, a few kilobytes of each.

Scripts that name these find them below the current folder and download nothing.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

CARD = """\
---
configs:
- config_name: mrpc
  data_files:
  - {split: train, path: mrpc/train.jsonl}
  - {split: validation, path: mrpc/validation.jsonl}
---
"""
METRIC = """\
import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        label = datasets.Value("int64")
        features = datasets.Features({"predictions": label, "references": label})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        right = sum(one == other for one, other in zip(predictions, references))
        return {"accuracy": right / len(references)}
"""
WORDS = ["[UNK]", "[PAD]", "a", "mat", "cat", "sat", "on", "the", *map(str, range(40))]


def write_model(folder):
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", model_max_length=64
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        pad_token_id=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)


def write_data(folder):
    (folder / "mrpc").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for split, rows in (("train", 160), ("validation", 80)):
        lines = [
            {
                "sentence1": f"the cat {row % 40} sat",
                "sentence2": f"a mat {row % 7} sat on the cat",
                "label": row % 3 % 2,
                "idx": row,
            }
            for row in range(rows)
        ]
        (folder / f"mrpc/{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))


write_model("model")
write_data(Path("nyu-mll/glue"))
Path("glue").mkdir()
Path("glue/glue.py").write_text(METRIC)
