"""Calls everything of Accelerate that a step is made of, and prints what came of it."""

import tempfile

import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
data = torch.utils.data.DataLoader(torch.randn(24, 8), batch_size=2)
model, optimizer, schedule, data = accelerator.prepare(model, optimizer, schedule, data)
with tempfile.TemporaryDirectory() as folder:
    for batch in data:
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
        accelerator.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        metric = accelerator.gather_for_metrics(loss.detach())
        accelerator.save_state(folder)
        accelerator.load_state(folder)
        print(loss.item(), norm.item(), metric.item(), schedule.get_last_lr())
