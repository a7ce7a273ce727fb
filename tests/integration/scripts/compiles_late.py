"""Compiles its model at the step whose number is the argument, and prints the losses."""

import sys

import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
forward = model
for step in range(14):
    if step == int(sys.argv[1]):
        forward = torch.compile(model, backend="eager")
    loss = forward(torch.ones(2, 8)).pow(2).sum()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
