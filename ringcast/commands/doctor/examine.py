"""Examine one machine, and answer the questions of a doctor on another machine."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from ringcast._util.dataclass import dataclass
from ringcast.commands.doctor import link, machine, network, software
from ringcast.commands.doctor.finding import Finding
from ringcast.commands.doctor.question import Question
from ringcast.protocol.compiled import REASON


@dataclass(frozen=True, slots=True)
class Examined:
    """One machine: its versions, the address at which a rank would listen ("": none), the MTU there, all findings."""

    name: str
    versions: Mapping[str, str]
    address: str
    mtu: int
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, object]:
        """Return the object that `from_json` reads."""
        findings = [finding.to_json() for finding in self.findings]
        mine = {"name": self.name, "versions": dict(self.versions), "address": self.address, "mtu": self.mtu}
        return {**mine, "findings": findings}

    @classmethod
    def from_json(cls, data: object) -> Examined:
        """Return the examination that another doctor has sent.

        Raises:
            ValueError: `data` is no examination.
        """
        match data:
            case {
                "name": str(name),
                "versions": dict(versions),
                "address": str(address),
                "mtu": int(mtu),
                "findings": [*findings],
            }:
                told = {str(name): str(number) for name, number in versions.items()}
                return cls(name, told, address, mtu, tuple(map(Finding.from_json, findings)))
        raise ValueError(f"not a doctor's answer: {data!r:.100}")


def examine(question: Question) -> Examined:
    """Examine this machine."""
    found, address, mtu = network.check(question)
    findings = (software.check_zeromq(), software.judge_build(REASON), *found, *machine.check(question))
    return Examined(socket.gethostname(), software.read(), address, mtu, findings)


def own_link(address: str, question: Question) -> Finding:
    """Measure the speed of this machine's connection to its own address."""
    rates: list[float] = []
    name = socket.gethostname()
    try:
        with link.listen(address, question.ports) as listener:
            receiver = threading.Thread(target=lambda: rates.append(link.receive(listener)))
            receiver.start()
            try:
                link.send(*listener.getsockname()[:2])
            finally:
                receiver.join()
    except OSError as error:
        return link.judge(name, "itself", address, 0.0, _words(error))
    return link.judge(name, "itself", address, rates[0], "")


def probe(questions: TextIO, answers: TextIO) -> None:
    """Examine this machine for a doctor on another machine, and answer its questions until it has no more.

    The first line is a `Question`, others are {"ask": "clock"}, {"ask": "listen"} and {"ask": "send", "to": [host,
    port]}; the answer to "listen" is the address, and, after a stream has come, its bytes per second.
    """

    def say(answer: Mapping[str, object]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    question = Question.from_json(json.loads(questions.readline()))
    examined = examine(question)
    say(examined.to_json())
    for line in questions:
        match json.loads(line):
            case {"ask": "clock"}:
                say({"time": time.time()})
            case {"ask": "listen"}:
                _listen(examined.address, question, say)
            case {"ask": "send", "to": [str(host), int(port)]}:
                say({"error": _send(host, port)})


def _listen(address: str, question: Question, say: Callable[[Mapping[str, object]], None]) -> None:
    try:
        with link.listen(address, question.ports) as listener:
            host, port = listener.getsockname()[:2]
            say({"host": host, "port": port})
            say({"rate": link.receive(listener)})
    except OSError as error:
        say({"error": _words(error)})


def _send(host: str, port: int) -> str:
    try:
        link.send(host, port)
    except OSError as error:
        return _words(error)
    return ""


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
