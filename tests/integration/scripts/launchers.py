"""Starts two ranks from inside Python, in the way its argument names."""

import os
import socket
import sys

import torch
import torch.multiprocessing
from accelerate import Accelerator, debug_launcher, notebook_launcher


def train():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    data = torch.utils.data.DataLoader(torch.ones(96, 8), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
    for batch in data:
        accelerator.backward(model(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"trained on {accelerator.num_processes}", flush=True)


def spawned(rank, port):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    train()


if __name__ == "__main__":
    if sys.argv[1] == "debug_launcher":
        debug_launcher(train, num_processes=2)
    elif sys.argv[1] == "notebook_launcher":
        notebook_launcher(train, num_processes=1)
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        torch.multiprocessing.start_processes(spawned, (port,), nprocs=2, start_method=sys.argv[1])
    print("launched")
