"""The header: its bytes are fixed for good, and whatever is no header is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.wire.header import SIZE, VERSION, Header, Kind, pack, pack_fields, to_itself, unpack

U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
headers = st.builds(Header, st.just(VERSION), U8, U16, U32, U64, U64, U32, U32, U32, U32, U64, U64, U64)


@given(headers)
def test_unpack_is_the_inverse_of_pack(header: Header) -> None:
    assert unpack(pack(header)) == header
    assert pack_fields(*header) == pack(header)
    assert len(pack(header)) == SIZE == 64


def test_the_bytes_on_the_wire() -> None:
    """Ranks of different versions of the library must read the same; a change here needs another VERSION."""
    header = Header(VERSION, 4, 0x0605, 0x0A090807, *range(1, 10))
    assert pack(header).hex(" ", 8) == " ".join(
        [
            "060405060708090a",
            "0100000000000000",
            "0200000000000000",
            "0300000004000000",
            "0500000006000000",
            "0700000000000000",
            "0800000000000000",
            "0900000000000000",
        ]
    )
    assert [kind.value for kind in Kind] == list(range(1, 9))  # the last two are never sent
    assert [kind.name for kind in Kind] == [
        "EAGER",
        "RTS",
        "CTS",
        "DATA",
        "DONE",
        "REFUSE",
        "NOTICE",
        "WAKE",
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_are_unpacked(kind: type) -> None:
    data = pack(Header(VERSION, *range(12)))
    assert unpack(kind(data)) == Header(VERSION, *range(12))


@given(st.binary(max_size=200).filter(lambda data: len(data) != SIZE))
def test_another_length_is_no_header(data: bytes) -> None:
    with pytest.raises(ValueError, match=str(len(data))):
        unpack(data)


@given(headers, st.integers(0, 255).filter(lambda version: version != VERSION))
def test_another_version_is_no_header(header: Header, version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version}"):
        unpack(pack(header._replace(version=version)))


@pytest.mark.parametrize("kind", [Kind.NOTICE, Kind.WAKE])
def test_what_a_process_says_to_its_rank_names_the_job_and_nothing_else(kind: Kind) -> None:
    header = unpack(to_itself(kind, 2**64 - 1))
    assert (header.kind, header.nonce, header.version) == (kind, 2**64 - 1, VERSION)
    assert not any(header[2:4] + header[5:])
