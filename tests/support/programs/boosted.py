"""Ranks that train with LightGBM over its own network of sockets, and over the communicator; rank 0 prints both models.

The argument is a JSON object with parameters of LightGBM, besides `rows`, `columns` and `rounds`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import lightgbm
import numpy as np

import ringcast
import ringcast.lightgbm
from ringcast.ops import Array
from support.ports import free_port

PLACES = ("[machines:", "[local_listen_port:")  # of its own network, in the text of a model


def data(rows: int, columns: int, rank: int, size: int) -> tuple[Array, Array]:
    """Return this rank's part of some rows, the last of whose columns are categories, and their targets."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 3, columns)
    x[:, -1] = rng.integers(0, 12, rows)
    y = x[:, 0] / x[:, 0].std() + np.sin(x[:, 1] / x[:, 1].std()) * (x[:, -1] % 3) + rng.normal(size=rows) / 3
    mine = np.arange(rows) % (size + 1) % size == rank  # rank 0 has twice as many
    return x[mine], y[mine]


def train(x: Array, y: Array, rounds: int, parameters: dict[str, Any]) -> lightgbm.Booster:
    rows = lightgbm.Dataset(x, y, params=parameters, categorical_feature=[x.shape[1] - 1])
    return lightgbm.train(parameters, rows, rounds)


def by_sockets(comm: ringcast.Communicator) -> dict[str, Any]:
    """Return the parameters of LightGBM's own network."""
    ports = comm.allgather(free_port())
    machines = ",".join(f"127.0.0.1:{port}" for port in ports)
    mine = {"machines": machines, "local_listen_port": ports[comm.rank]}
    return {"num_machines": comm.size, "tree_learner": "data", **mine}


def digest(booster: lightgbm.Booster) -> str:
    lines = booster.model_to_string().splitlines()
    return hashlib.md5("\n".join(line for line in lines if not line.startswith(PLACES)).encode()).hexdigest()


def main() -> None:
    """Train twice, and print the digests of all ranks' models."""
    given = json.loads(sys.argv[1])
    comm = ringcast.init()
    rounds = given.pop("rounds")
    x, y = data(given.pop("rows"), given.pop("columns"), comm.rank, comm.size)
    if given.get("objective") == "binary":
        y = (y > 0).astype(float)
    parameters = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, **given}
    own = digest(train(x, y, rounds, {**parameters, **by_sockets(comm), **given}))
    with ringcast.lightgbm.network(comm) as network:
        ours = digest(train(x, y, rounds, {**parameters, **network, **given}))
    models = comm.allgather([own, ours])
    if comm.rank == 0:
        print(json.dumps(models))


if __name__ == "__main__":
    main()
