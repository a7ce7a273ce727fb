"""A plain training loop: a small model on made-up data."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed


class Classifier(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(32, width)
        layer = torch.nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=2 * width, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(inputs)).mean(dim=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    accelerator = Accelerator()
    set_seed(0)
    samples = args.steps * args.batch_size * accelerator.num_processes
    dataset = torch.utils.data.TensorDataset(torch.randn(samples, 16, 32), torch.randint(10, (samples,)))
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers)
    model = Classifier(width=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for inputs, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"trained {args.steps} steps, last loss {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
