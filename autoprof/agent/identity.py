"""Who this process is: rank, world size, node, run id, versions."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoprof._startup import new_run_id

# First match wins: torchrun's own variables describe the job even inside a Slurm or MPI allocation.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_WORLD_SIZE = (
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
)
_LOCAL_RANK = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
)
_LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_NODE = ("GROUP_RANK", "SLURM_NODEID")

MINTED_RUN_ID = "_ACCELPROF_RUN_ID"
"""Set by the launcher process (see ``_startup.py``) and inherited by its ranks."""


@dataclass(frozen=True)
class Identity:
    """One process of a job."""

    rank: int
    world_size: int
    local_rank: int
    node: int
    """Number of the node within the job, from 0."""
    host: str
    pid: int
    run_id: str


def identify(environ: Mapping[str, str], run_id: str | None) -> Identity:
    """Identify this process, from the live process group first and from the launcher's variables last.

    ``run_id`` is the one the settings name, if any.
    """
    rank, world_size = _live_rank() or (_first(environ, _RANK, 0), _first(environ, _WORLD_SIZE, 1))
    world_size = max(world_size, rank + 1)
    alone = world_size == 1
    local_rank = 0 if alone else _first(environ, _LOCAL_RANK, rank)
    local_world_size = _first(environ, _LOCAL_WORLD_SIZE, world_size)
    node = 0 if alone else _first(environ, _NODE, rank // max(local_world_size, 1))
    one_node = local_world_size >= world_size
    return Identity(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        node=node,
        host=socket.gethostname(),
        pid=os.getpid(),
        run_id=run_id or _run_id(environ, one_node=one_node),
    )


def environment_rank(environ: Mapping[str, str]) -> int:
    """Return the rank the launcher's variables give, for a process that has not begun to work."""
    return _first(environ, _RANK, 0)


def scheduler_id(environ: Mapping[str, str]) -> str:
    """Return the batch scheduler's job id as a prefix for names; empty where there is none."""
    if environ.get("SLURM_JOB_ID"):
        return _safe("slurm-" + environ["SLURM_JOB_ID"])
    if environ.get("PBS_JOBID"):
        return _safe("pbs-" + environ["PBS_JOBID"])
    if environ.get("LSB_JOBID"):
        return _safe("lsf-" + environ["LSB_JOBID"])
    return ""


def _run_id(environ: Mapping[str, str], *, one_node: bool) -> str:
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    if elastic not in ("", "none"):
        return "-".join(filter(None, (scheduler_id(environ), _safe(elastic))))
    minted = environ.get(MINTED_RUN_ID)
    if minted and one_node:
        return "-".join(filter(None, (scheduler_id(environ), _safe(minted))))
    if scheduler_id(environ):
        step = environ.get("SLURM_STEP_ID", "")
        return _safe(".".join(filter(None, (scheduler_id(environ), step))))
    return _agree(_safe(minted or new_run_id()))


def _agree(candidate: str) -> str:
    """Return the id that the first rank to ask left in the job's store: no rank waits for another."""
    distributed = _process_group()
    if distributed is None or distributed.get_world_size() == 1:
        return candidate
    store = distributed.distributed_c10d._get_default_store()
    return str(store.compare_set("autoprof/run_id", "", candidate).decode())


def _live_rank() -> tuple[int, int] | None:
    distributed = _process_group()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    state = sys.modules.get("accelerate.state")
    # Accelerate's state is one dict shared by all its instances; empty until an Accelerator is built.
    shared = getattr(getattr(state, "PartialState", None), "_shared_state", None)
    if shared and shared.get("num_processes"):
        return int(shared.get("process_index", 0)), int(shared["num_processes"])
    return None


def _process_group() -> Any:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def has_process_group() -> bool:
    """Say whether torch itself will write this rank's ``distributedInfo``."""
    return _process_group() is not None


def _first(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdecimal()), default)


def _safe(text: str) -> str:
    return re.sub(r"[^\w.+=@-]+", "-", text, flags=re.ASCII).strip(".-")[:128] or "run"


def versions() -> dict[str, str]:
    """Return the versions of everything that a trace may depend on, as far as it is imported."""
    from autoprof import __version__

    found = {"autoprof": __version__, "python": sys.version.split()[0]}
    for name in ("torch", "accelerate", "transformers", "deepspeed"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    return found


def first_on_node(what: str) -> bool:
    """Say whether this process is the first of its node to ask; later ones are told no while it lives.

    An abstract socket stands for the claim (Linux): it leaves no file, asks nobody and ends with the process.
    """
    if what in _claims:
        return True
    name = "\0autoprof-" + hashlib.sha256(what.encode()).hexdigest()
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(name)
    except OSError as error:
        claim.close()
        return error.errno != errno.EADDRINUSE  # anything else: no such sockets here, so no claims
    _claims[what] = claim
    return True


_claims: dict[str, socket.socket] = {}
