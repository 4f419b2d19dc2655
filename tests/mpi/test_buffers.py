"""Buffer specifications: the parts of the program's memory that they choose, and mpi4py's errors for wrong ones."""

import array
import ctypes
import mmap
import struct

import numpy as np
import pytest

from ringcast.mpi.base.exceptions import ERR_RANK, Exception
from ringcast.mpi.base.sentinels import BOTTOM
from ringcast.mpi.data.memory import Alloc_mem, Get_address, buffer
from ringcast.mpi.datatypes.buffers import block, joined, message, vector, wide
from ringcast.mpi.datatypes.datatype import Datatype
from ringcast.mpi.datatypes.op import BAND, of_buffers
from ringcast.mpi.datatypes.predefined import (
    BYTE,
    C_LONG_DOUBLE_COMPLEX,
    DATATYPE_NULL,
    DOUBLE,
    DOUBLE_INT,
    INT,
    LONG,
    LONG_DOUBLE,
)
from ringcast.wire.error_text import text_of

FOUR = np.arange(4, dtype="i4")


class Tensor:
    """An exporter of DLPack alone."""

    def __init__(self, source):
        self.source = source

    def __dlpack__(self, **arguments):
        return self.source.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.source.__dlpack_device__()


class OnDevice:
    """An exporter that says that its memory belongs to a device."""

    def __init__(self, address, nbytes):
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "strides": None,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        (FOUR, [0, 1, 2, 3]),
        ([FOUR, 2], [0, 1]),
        ([FOUR, (2, 1)], [1, 2]),
        ([FOUR, [2, 1]], [1, 2]),
        ([FOUR, 2, 1, "i"], [1, 2]),
        ((FOUR, None, 1, INT), [1, 2, 3]),
        ([FOUR, None], [0, 1, 2, 3]),
        ([FOUR, np.int64(3), "i4"], [0, 1, 2]),
        ([FOUR, 0, 4, "i"], []),
        ([None, 0, "i"], []),
        ([BOTTOM, 0, "i"], []),
        ([FOUR, 1, INT.Create_vector(2, 1, 2).Commit()], [0, 2]),
        (FOUR.reshape(2, 2).T, [0, 1, 2, 3]),
        ([FOUR[1:3], 1, INT.Create_vector(2, 1, 2).Commit()], [1, 3]),  # it reaches into the rest of the array
    ],
)
def test_a_specification_chooses_items(spec, chosen):
    assert message(spec, writes=False).packed().view("i4").tolist() == chosen


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ([FOUR], ValueError),
        ([], ValueError),
        ([FOUR, 0, 0, "i", None], ValueError),
        ([FOUR, (1, 2, 3)], ValueError),
        ([FOUR, -1], ValueError),
        ([FOUR, 1, -1, "i"], ValueError),
        ([FOUR, 1, 5, "i"], ValueError),
        ([FOUR, 5], ValueError),
        ([None, 3, "i"], ValueError),
        ([b"1234567", "i"], ValueError),
        ([FOUR, DATATYPE_NULL], ValueError),
        ([FOUR, 0, 1, DATATYPE_NULL], ValueError),
        ([FOUR, 1, DATATYPE_NULL], Exception),
        ([FOUR, INT.Create_resized(0, -4).Commit()], ValueError),
        ([FOUR, "int"], KeyError),
        ([FOUR, "i", 2], KeyError),
        ([None, None], KeyError),
        (np.zeros(3, "S5"), KeyError),
        (np.zeros(3, "i4, f8"), KeyError),
        ([FOUR, 2.0], TypeError),
        ([[1, 2], 2, "i"], TypeError),
        ("abc", TypeError),
        (None, TypeError),
        (np.zeros(3, ">i4"), BufferError),
        (np.zeros((3, 2))[:, 0], BufferError),
        (np.array(["a"]), KeyError),
        ([FOUR, 1, INT.Create_contiguous(2)], Exception),  # it is not committed
    ],
)
def test_a_wrong_specification_raises_what_mpi4py_raises(spec, error):
    with pytest.raises(error):
        message(spec, writes=False)


@pytest.mark.parametrize("source", [b"abc", memoryview(b"abc"), np.frombuffer(b"abc", "u1")])
def test_memory_that_cannot_be_written_is_refused_where_data_come(source):
    assert message([source, BYTE], writes=False).packed().tobytes() == b"abc"
    with pytest.raises(BufferError):
        message([source, BYTE], writes=True)


EXPORTERS = {
    "numpy": lambda values: np.array(values, "i4"),
    "array": lambda values: array.array("i", values),
    "bytearray": lambda values: bytearray(np.array(values, "i4").tobytes()),
    "ctypes": lambda values: (ctypes.c_int * len(values))(*values),
    "dlpack": lambda values: Tensor(np.array(values, "i4")),
    "buffer": lambda values: buffer(np.array(values, "i4")),
}


@pytest.mark.parametrize("made", EXPORTERS.values(), ids=EXPORTERS)
def test_any_exporter_is_read_and_written(made):
    source = made([1, 2, 3])
    part = message([source, INT], writes=True)
    assert part.values().tolist() == [1, 2, 3]
    part.store(np.array([7, 8], "i4").view(np.uint8))
    assert message([source, INT], writes=False).values().tolist() == [7, 8, 3]


@pytest.mark.parametrize(("kind", "datatype"), [(ctypes.c_int, INT), (ctypes.c_double, DOUBLE)])
def test_formats_with_a_byte_order_are_known(kind, datatype):
    assert message((kind * 2)(1, 2), writes=False).datatype == datatype
    assert message(memoryview((kind * 0)()), writes=False).count == 0


@pytest.mark.parametrize("code", "?bBhHiIlLqQefdgFDG")
def test_numpy_items_have_their_datatype(code):
    values = np.array([0, 1, 1], code)
    assert message(values, writes=False).values().dtype == values.dtype
    assert message(Tensor(values) if code not in "gGqQ" else values, writes=False).datatype.typechar == code


def test_memory_said_to_be_of_a_device_is_used_if_the_host_can_read_it():
    memory = np.arange(5, dtype=np.uint8)
    part = message(OnDevice(Get_address(memory), 5), writes=True)
    assert part.packed().tolist() == [0, 1, 2, 3, 4]
    hidden = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(hidden))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 0)
    with pytest.raises(BufferError, match="device"):
        message(OnDevice(address, 2 * mmap.PAGESIZE), writes=False)


def test_blocks_take_a_count_each():
    six = np.arange(6)
    assert [part.values().tolist() for part in block(six, 3, writes=False).split(3)] == [[0, 1], [2, 3], [4, 5]]
    assert [part.values().tolist() for part in block([six, 1], 3, writes=False).split(3)] == [[0], [1], [2]]
    spread = LONG.Create_resized(0, 16).Commit()
    assert [p.packed().view(int).tolist() for p in block([six, spread], 3, writes=False).split(3)] == [[0], [2], [4]]
    with pytest.raises(ValueError, match="blocks"):
        block(six, 4, writes=False)


@pytest.mark.parametrize(
    ("counts", "chosen"),
    [
        (None, [[0, 1, 2], [3, 4, 5]]),
        (2, [[0, 1], [2, 3]]),
        ([1, 3], [[0], [1, 2, 3]]),
        (([1, 3], None), [[0], [1, 2, 3]]),
        (([1, 3], [5, 0]), [[5], [0, 1, 2]]),
        ((2, 3), [[0, 1], [3, 4]]),  # one displacement is the distance between blocks
        (np.array([2, 0]), [[0, 1], []]),
    ],
)
def test_vectors_take_counts_and_displacements(counts, chosen):
    six = np.arange(6)
    assert [part.values().tolist() for part in vector([six, counts, LONG], 2, writes=False)] == chosen


@pytest.mark.parametrize(
    ("counts", "error"), [([1], ValueError), ([1, 1, 1], ValueError), ([2.0, 1], TypeError), ([9, 0], ValueError)]
)
def test_wrong_counts_are_refused(counts, error):
    with pytest.raises(error):
        vector([np.arange(6), counts, LONG], 2, writes=False)
    with pytest.raises(Exception, match="negative"):
        vector([np.arange(6), [1, -1], LONG], 2, writes=False)


def test_wide_parts_have_datatypes_and_displacements_in_bytes():
    six = np.arange(6)
    first, second = wide([six, [2, 1], [8, 0], [LONG, BYTE]], 2, writes=False)
    assert first.values().tolist() == [1, 2]
    assert second.values().tolist() == [0]
    assert [part.nbytes for part in wide([six, [LONG, BYTE]], 2, writes=False)] == [8, 1]
    for bad in ([six], [six, [1, 1], [0, 0], [LONG]], [BOTTOM, None, [0, 0], [LONG, BYTE]]):
        with pytest.raises(ValueError, match=r"items|datatypes|address"):
            wide(bad, 2, writes=False)


def test_parts_behind_each_other_are_one_memory():
    six = np.arange(6)
    line = joined(vector([six, [2, 0, 3]], 3, writes=True))
    assert line is not None
    assert np.shares_memory(line, six)
    assert line.view(int).tolist() == [0, 1, 2, 3, 4]
    assert joined(vector([six, [1, 1], [1, 0], LONG], 2, writes=False)) is None
    assert joined(block(six, 3, writes=False).split(3)).nbytes == six.nbytes


def test_addresses_choose_memory_anywhere():
    first, second = np.arange(3), np.zeros(2)
    made = Datatype.Create_struct([3, 2], [Get_address(first), Get_address(second)], [LONG, DOUBLE]).Commit()
    part = message([BOTTOM, 1, made], writes=True)
    assert part.packed().tobytes() == first.tobytes() + second.tobytes()
    part.store(np.array([9, 8, 7, 0, 0]).view(np.uint8))
    assert first.tolist() == [9, 8, 7]


def test_pairs_are_values_and_indices():
    pairs = np.zeros(2, np.dtype("f8, i4", align=True))
    pairs["f0"], pairs["f1"] = [1.5, 2.5], [3, 4]
    values = message([pairs, DOUBLE_INT], writes=False).values()
    assert values["value"].tolist() == [1.5, 2.5]
    assert values["index"].tolist() == [3, 4]


def test_packing_puts_elements_one_behind_the_other():
    memory = bytearray(40)
    end = INT.Pack(FOUR, memory, 4, comm=True)
    end = INT.Create_vector(2, 1, 2).Commit().Pack(FOUR[:3], memory, end, comm=True)
    assert np.frombuffer(memory, "i4", count=7).tolist() == [0, 0, 1, 2, 3, 0, 2]
    assert end == 28
    back = np.zeros(4, "i4")
    assert INT.Unpack(memory, 4, back, comm=True) == 20
    assert back.tolist() == FOUR.tolist()
    for call in (lambda: INT.Pack(FOUR, bytearray(15), 0, True), lambda: INT.Pack(FOUR, memory, 0, None)):
        with pytest.raises(Exception):
            call()


def test_external32_is_big_endian():
    memory = bytearray(100)
    made = Datatype.Create_struct([1, 2, 1], [0, 8, 16], [LONG, INT, DOUBLE]).Commit()
    native = struct.pack("@qiid", -5, 6, 7, 1.5)
    assert made.Pack_external("external32", native, memory, 0) == made.Pack_external_size("external32", 1) == 20
    assert struct.unpack_from(">iiid", memory) == (-5, 6, 7, 1.5)
    back = bytearray(len(native))
    assert made.Unpack_external("external32", memory, 0, back) == 20
    assert back == native


def test_long_doubles_are_those_of_ieee_754():
    values = np.array([1, -2.5, 0, 1e4000], np.longdouble)
    memory = bytearray(64)
    LONG_DOUBLE.Pack_external("external32", values, memory, 0)
    assert memory[:16].hex() == "3fff" + 28 * "0"
    assert memory[16:32].hex() == "c0004" + 27 * "0"
    back = np.zeros(2, np.clongdouble)
    C_LONG_DOUBLE_COMPLEX.Unpack_external("external32", memory, 0, back)
    assert back.view(np.longdouble).tolist() == values.tolist()


def test_allocated_memory():
    memory = Alloc_mem(16)
    memory[:] = 0
    memory[2:5] = b"abc"
    assert (bytes(memory[:6]), memory[4], len(memory)) == (b"\0\0abc\0", ord("c"), 16)
    assert memory[2:].address == memory.address + 2
    assert memoryview(memory).format == "B"
    for index, error in ((16, IndexError), (slice(None, None, 2), IndexError), (None, TypeError)):
        with pytest.raises(error):
            memory[index]
    with pytest.raises(ValueError, match="bytes"):
        memory[0:1] = b"ab"


def test_errors_use_the_words_of_programs():
    with pytest.raises(BufferError, match=r"ascontiguousarray.*Create_vector"):
        message(np.zeros((3, 2))[:, 0], writes=False)
    with pytest.raises(Exception, match="that BAND can combine, got MPI_DOUBLE"):
        of_buffers(BAND, message(np.zeros(2), writes=False))
    assert text_of(Exception(ERR_RANK)) == "ringcast.MPI.Exception: wrong rank\n"
