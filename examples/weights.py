"""Weights that are read once: a safetensors file goes into one array on each host, and is used there.

    ringcast-launch -n 4 examples/weights.py [--file model.safetensors]

Each host reads a part of the file by `comm.read_file`, and gets the others from the other hosts; the ranks of a host
share its array. A file has the length of its header, the header in JSON, and the tensors in a row: so they are views of
that memory, where `safetensors.numpy.load` would copy them. At the end rank 0 compares them with the tensors that
safetensors loads, and all ranks with rank 0's. Types that numpy lacks (BF16) are not taken. Needs safetensors: pip
install safetensors
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ringcast

try:
    from safetensors.numpy import load, save
except ImportError:
    raise ImportError("this example needs safetensors: pip install safetensors") from None

Tensors = dict[str, npt.NDArray[Any]]

FLOATS = {"F64": "f8", "F32": "f4", "F16": "f2"}
TYPES = (
    FLOATS | {f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)} | {"BOOL": "?"}
)


def main() -> None:
    parser = argparse.ArgumentParser(description="the tensors of a safetensors file, in one array on each host")
    parser.add_argument("--file", help="path or URL, as for comm.read_file; rank 0 makes one of 8 MB without")
    source = parser.parse_args().file
    comm = ringcast.init()
    with tempfile.TemporaryDirectory() as folder:
        if source is None:
            source = comm.bcast(str(Path(folder) / "made.safetensors"))
            if comm.rank == 0:
                Path(source).write_bytes(save(made()))
            comm.barrier()
        memory = comm.read_file(source)
    tensors = views(memory)
    digest = hashlib.sha256(memory).hexdigest()
    if comm.rank == 0 and not equal(tensors, load(memory.tobytes())):
        sys.exit("these are not the tensors that safetensors loads")
    if not comm.allreduce(digest == comm.bcast(digest), ringcast.LAND):
        sys.exit("these are not the bytes of rank 0 on all ranks")
    if comm.rank == 0:
        size = sum(tensor.nbytes for tensor in tensors.values())
        print(f"{len(tensors)} tensors, {size:,} bytes, on {comm.size} ranks: as safetensors loads them")


def made() -> Tensors:
    """Return the weights of a network that has learnt nothing."""
    random = np.random.default_rng(1)
    layers = {f"layer{i}.weight": random.standard_normal((512, 512), np.float32) for i in range(8)}
    return layers | {f"layer{i}.bias": np.zeros(512, np.float16) for i in range(8)}


def views(memory: npt.NDArray[np.uint8]) -> Tensors:
    """Return the tensors as arrays that lie in the memory."""
    begin = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    header = json.loads(memory[8:begin].tobytes())
    header.pop("__metadata__", None)
    tensors: Tensors = {}
    for name, facts in header.items():
        first, last = facts["data_offsets"]
        if facts["dtype"] not in TYPES:
            sys.exit(f"{name}: {facts['dtype']} is no type of numpy; this example takes {', '.join(TYPES)}")
        tensors[name] = memory[begin + first : begin + last].view(f"<{TYPES[facts['dtype']]}").reshape(facts["shape"])
    return tensors


def equal(ours: Tensors, theirs: Tensors) -> bool:
    """Return whether the tensors have the same names, shapes and bytes."""
    return ours.keys() == theirs.keys() and all(
        ours[name].shape == theirs[name].shape and ours[name].tobytes() == theirs[name].tobytes() for name in ours
    )


if __name__ == "__main__":
    main()
