"""The line of `--verbose` that names the transport of a job."""

from __future__ import annotations

import pytest

from ringcast.config.worker import WorkerConfig
from ringcast_launcher.plan.job import transport_text
from support import needs


@needs.shared_memory
@pytest.mark.parametrize(
    ("transport", "near", "text"),
    [
        ("shm", False, "ranks talk over shm: large messages are"),
        ("ipc", False, "ranks talk over ipc"),
        ("sockets", True, "ranks talk over sockets, encrypted; within a host over shm: large messages are"),
        ("sockets", False, "ranks talk over sockets, encrypted"),
        ("tcp", True, "ranks talk over tcp, encrypted; within a host over ipc"),
        ("tcp", False, "ranks talk over tcp, encrypted"),
    ],
)
def test_each_way_is_named(transport: str, near: bool, text: str) -> None:
    said = transport_text(WorkerConfig(transport=transport, near=near))
    assert said.startswith(text) if text.endswith("are") else said == text


@needs.shared_memory
def test_what_is_not_encrypted_is_said_to_be_so() -> None:
    world = WorkerConfig(transport="sockets", security="none")
    assert transport_text(world) == "ranks talk over sockets, not encrypted"
