"""Servers for the tests of fetch and of sources."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.patience import patience
from support.web import Web, web


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def site() -> Iterator[Web]:
    with web() as made:
        yield made


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate of 127.0.0.1 with its key, which it has signed itself."""
    file = tmp_path_factory.mktemp("tls") / "cert.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(file)]
    subprocess.run(
        ["openssl", "req", "-x509", *key, "-out", f"{file}.crt", *names],
        check=True,
        capture_output=True,
        timeout=patience(60),
    )
    with file.open("ab") as both, open(f"{file}.crt", "rb") as public:
        shutil.copyfileobj(public, both)
    return file
