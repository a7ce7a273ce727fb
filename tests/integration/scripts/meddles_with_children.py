"""A script that kills, reaps, stops or handles the signals of whatever children it has."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from accelerate import Accelerator

doing = sys.argv[1]
ended = threading.Event()


def reap():
    while not ended.is_set():
        children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text().split()
        for child in map(int, children):
            os.waitpid(child, 0)
            ended.set()


if doing in ("kills", "stops"):
    how = signal.SIGKILL if doing == "kills" else signal.SIGSTOP
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), how))
if doing == "handles":
    signal.signal(signal.SIGCHLD, lambda *_: None)
if doing == "reaps":
    threading.Thread(target=reap, daemon=True).start()
accelerator = Accelerator()
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(40)))
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(20):
    accelerator.backward(model(torch.ones(4, 8)).sum())
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
ended.set()
print("done")
