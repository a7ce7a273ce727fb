"""Gradient accumulation: four micro-batches to one optimizer step."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

STEPS, MICRO_STEPS, BATCH_SIZE = 12, 4, 8


def main() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=MICRO_STEPS)
    set_seed(0)
    samples = STEPS * MICRO_STEPS * BATCH_SIZE * accelerator.num_processes
    dataset = torch.utils.data.TensorDataset(torch.randn(samples, 64), torch.randn(samples, 1))
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH_SIZE)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    accelerator.print(f"last loss {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
