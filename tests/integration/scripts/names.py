"""Trains inside ranges whose names are hard to write down."""

import torch
from accelerate import Accelerator

NAMES = ['a"b', "a\\b", "a\nb", "a\x01b", "é\u2028", "a\tb", "x" * 50000, '"', '{"ph": "X"}, {']

accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(12):
    for name in NAMES:
        with torch.profiler.record_function(name):
            loss = model(torch.ones(2, 8)).sum()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
