"""Trains 50 steps and prints every loss and parameter to the last bit."""

import hashlib
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

how = sys.argv[1]
accelerator = Accelerator(gradient_accumulation_steps=2 if how == "accumulated" else 1)
set_seed(7)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(64, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
samples = torch.randn(50 * 8 * (2 if how == "accumulated" else 1) * accelerator.num_processes, 16)
loader = torch.utils.data.DataLoader(samples, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if how == "compiled":
    model = torch.compile(model, backend="aot_eager")

digest = hashlib.sha256()
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    digest.update(loss.detach().numpy().tobytes())
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
# In one piece: two ranks share the terminal.
sys.stdout.write(f"{accelerator.process_index} {digest.hexdigest()} {torch.rand(1).item()}\n")
