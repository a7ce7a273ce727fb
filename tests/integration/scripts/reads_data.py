"""Trains on a dataset that takes so many seconds per batch on the ranks named, then ends as told."""

import os
import signal
import sys
import time

import torch
from accelerate import Accelerator


class Readings(torch.utils.data.Dataset):
    def __init__(self, batches, seconds):
        self.batches, self.seconds = batches, seconds

    def __len__(self):
        return self.batches

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(8) * index


def main(batches, seconds, slow_ranks, end=""):
    accelerator = Accelerator()
    torch.manual_seed(0)
    rank, ranks = accelerator.process_index, accelerator.num_processes
    data = Readings(batches * ranks, seconds if str(rank) in slow_ranks.split(",") else 0.0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.DataLoader(data, batch_size=1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        time.sleep(0.002)  # work
        accelerator.backward(model(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
    if end == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    if end == "_exit":
        os._exit(4)
    if end == "fork":
        child = os.fork()
        if child == 0:
            accelerator.backward(model(batch).sum())
            optimizer.step()
            sys.exit(5)
        print("the child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("trained to the end", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
