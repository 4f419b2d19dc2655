"""Make CURVE key pairs: two that are derived from the job's key, and one of each member's own, new for every job.

Only members know the job's key (RINGCAST_KEY). It is the secret key of the control plane. The pair by which members
authenticate to the control plane is derived from it, so the control plane's public key alone is not enough to join.
Members authenticate to each other by pairs of their own, whose public keys the control plane distributes.
"""

from __future__ import annotations

import struct
from dataclasses import field

import zmq
from zmq.utils import z85

from ringcast._util.dataclass import dataclass

LENGTH = 40  # characters of a key in Z85
OPEN = (
    "security none: nothing between the ranks is encrypted, and any process that reaches one of their ports can join, "
    "change the results, and run code in the job"
)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public and a secret key, in Z85."""

    public: bytes
    secret: bytes = field(repr=False)


def new_pair() -> KeyPair:
    """Return a new random pair."""
    return KeyPair(*zmq.curve_keypair())


def new_key() -> str:
    """Return a secret key for a job: 40 characters of Z85."""
    return new_pair().secret.decode()


def control_pair(key: str) -> KeyPair:
    """Return the pair of the control plane of the job with this key.

    Raises:
        ValueError: the text is no key.
    """
    secret = _checked(key)
    return KeyPair(zmq.curve_public(secret), secret)


def member_pair(key: str) -> KeyPair:
    """Return the pair by which the members of the job with this key authenticate to the control plane.

    Raises:
        ValueError: the text is no key.
    """
    import hashlib  # with OpenSSL, for which no start on one host waits

    derived = hashlib.blake2b(z85.decode(_checked(key)), digest_size=32, person=b"ringcast member")
    secret = z85.encode(derived.digest())
    return KeyPair(zmq.curve_public(secret), secret)


def is_key(text: str) -> bool:
    """Return whether a text can be a key, public or secret."""
    try:
        return len(text) == LENGTH and len(z85.decode(text.encode("ascii"))) == 32
    except (UnicodeEncodeError, KeyError, struct.error):
        return False


def _checked(key: str) -> bytes:
    if not is_key(key):
        raise ValueError("tcp needs the job's secret key (RINGCAST_KEY, 40 characters of Z85)")
    return key.encode()
