"""Trains a number of steps that take at least the given seconds each."""

import sys
import time

import torch
from accelerate import Accelerator


def main(steps, seconds):
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(steps):
        time.sleep(seconds)
        accelerator.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()
        optimizer.zero_grad()
    print("trained to the end", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
