"""Trains through DeepSpeed itself and prints what it counted. Arguments: ZeRO stage, micro-steps."""

import json
import sys

import deepspeed.comm.torch
import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin

# Shared memory between ranks is compiled for minutes on first use, and a step does without it.
deepspeed.comm.torch.build_shm_op = lambda: None

stage, micro_steps = map(int, sys.argv[1:])
plugin = DeepSpeedPlugin(
    hf_ds_config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": micro_steps,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
)
accelerator = Accelerator(deepspeed_plugin=plugin)
torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
counts = []
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
optimizer.register_step_post_hook(lambda *_: counts.append(1))
data = torch.utils.data.DataLoader(torch.randn(accelerator.num_processes * 12 * 4, 8), batch_size=4)
net, optimizer, data = accelerator.prepare(net, optimizer, data)
for batch in data:
    with accelerator.accumulate(net):
        accelerator.backward(net(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
if accelerator.is_main_process:
    about = {"steps": len(counts), "engine": net.global_steps, "type": accelerator.distributed_type.value}
    print("\n" + json.dumps(about), flush=True)
accelerator.end_training()
