"""Runs a program of one rank as several processes, of mpi4py or of torch.distributed. Its first argument is a folder for its results, and it
finds `over`, its communicator, `rank` and `size`. Skips the test where the library is missing."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest


def on_mpi4py(program, ranks, folder):
    run = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if importlib.util.find_spec("mpi4py") is None or run is None:
        pytest.skip("needs mpi4py and mpirun")
    file = folder / "rank.py"
    file.write_text("from mpi4py import MPI\nover = MPI.COMM_WORLD\nrank, size = over.Get_rank(), over.Get_size()\n" + program)
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OPENBLAS_NUM_THREADS": "1"}
    made = subprocess.run([run, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, "-B", str(file), str(folder)],
                          capture_output=True, text=True, timeout=120, env=os.environ | allowed)
    assert made.returncode == 0, made.stderr


def on_gloo(program, ranks, folder):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    texts, statuses = of_torch("gloo", "", program, ranks, folder)
    assert not any(statuses) and not any("Error" in text for _, text in texts), texts


def on_nccl(program, ranks, folder):
    """A process for each device. Returns what each has printed, standard output and errors, and the exit statuses."""
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < ranks or not torch.distributed.is_nccl_available():
        pytest.skip(f"needs {ranks} CUDA devices and PyTorch's NCCL, found {torch.cuda.device_count()} devices")
    return of_torch("nccl", "import os, torch\ntorch.cuda.set_device(int(os.environ['RANK']))\n", program, ranks, folder)


def of_torch(backend, before, program, ranks, folder):
    """Processes of torch.distributed. A program ends its process group itself if it leaves it otherwise than at its end."""
    file = folder / "rank.py"
    file.write_text(f"{before}import torch.distributed as dist\ndist.init_process_group('{backend}')\nover = dist.group.WORLD\n"
                    "rank, size = dist.get_rank(), dist.get_world_size()\n" + program + "dist.destroy_process_group()\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    each = [os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "RANK": str(rank)} for rank in range(ranks)]
    started = [subprocess.Popen([sys.executable, "-B", str(file), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
               for env in each]
    end, texts = time.monotonic() + 180, []
    try:
        texts = [one.communicate(timeout=max(1.0, end - time.monotonic())) for one in started]
    finally:  # a process that waits for another one for ever ends with the test
        for one in started:
            if one.poll() is None:
                one.kill()
    return texts, [one.returncode for one in started]
