"""Inference: no optimizer, every batch is a step."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

BATCHES, BATCH_SIZE = 20, 32


def main() -> None:
    accelerator = Accelerator()
    set_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 10))
    samples = torch.randn(BATCHES * BATCH_SIZE * accelerator.num_processes, 64)
    loader = torch.utils.data.DataLoader(samples, batch_size=BATCH_SIZE)
    model, loader = accelerator.prepare(model.eval(), loader)

    predicted = []
    with torch.no_grad():
        for batch in loader:
            predicted.append(accelerator.gather_for_metrics(model(batch).argmax(dim=1)))
    accelerator.print(f"classified {len(torch.cat(predicted))} samples")
    accelerator.end_training()


if __name__ == "__main__":
    main()
