"""Trains with DataLoader workers started in the way its argument names, and with a child of its own."""

import json
import subprocess
import sys

import torch
from accelerate import Accelerator


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        in_worker = torch.utils.data.get_worker_info() is not None
        return torch.ones(8) * index, in_worker, torch.autograd._profiler_enabled()


if __name__ == "__main__":
    accelerator = Accelerator()
    torch.manual_seed(0)
    data = torch.utils.data.DataLoader(
        Rows(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    net = torch.nn.Linear(8, 1)
    net, optimizer, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.001), data)
    in_workers = profiling = 0
    for epoch in range(2):  # each starts its own workers
        for batch, *flags in data:
            in_workers += flags[0].sum().item()
            profiling += flags[1].sum().item()
            accelerator.backward(net(batch).sum())
            optimizer.step()
            optimizer.zero_grad()
        subprocess.run([sys.executable, "-c", f"print('child {epoch}')"], check=True)
    print(json.dumps([in_workers, profiling, net.weight.sum().item()]))
