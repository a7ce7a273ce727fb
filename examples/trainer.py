"""transformers' Trainer on a tiny language model that is built here: nothing is downloaded."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

STEPS, MICRO_STEPS, BATCH_SIZE, LENGTH = 12, 2, 4, 32


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return STEPS * MICRO_STEPS * BATCH_SIZE

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) * (index + 1)) % 100
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            gradient_accumulation_steps=MICRO_STEPS,
            per_device_train_batch_size=BATCH_SIZE,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        result = Trainer(model=model, args=arguments, train_dataset=Sentences()).train()
    print(f"trained {result.global_step} steps, loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
