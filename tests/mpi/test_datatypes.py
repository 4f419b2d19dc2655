"""Datatypes against a pure model, which expands a type map byte by byte, and against what MPICH says of some."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.mpi.base import constants
from ringcast.mpi.base.error_classes import ERR_ARG, ERR_COUNT, ERR_RANK, ERR_TYPE
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.data.elements import Elements
from ringcast.mpi.datatypes import predefined
from ringcast.mpi.datatypes.datatype import Datatype
from ringcast.mpi.datatypes.predefined import BYTE, CHAR, DOUBLE, INT, SHORT

NAMES = {**vars(constants), **vars(predefined), "Datatype": Datatype}


@dataclass
class Model:
    """A type map: the place of each byte, in order, and where the next element begins."""

    bytes: list
    lb: int
    ub: int
    alignment: int

    @property
    def extent(self):
        return self.ub - self.lb


def expanded(parts):
    """Blocks of elements of models, given as (model, displacement, length)."""
    copies = [(model, place + k * model.extent) for model, place, length in parts for k in range(length)]
    places = [start + offset for model, start in copies for offset in model.bytes]
    lb = min((start + model.lb for model, start in copies), default=0)
    ub = max((start + model.ub for model, start in copies), default=0)
    return Model(places, lb, ub, max((model.alignment for model, _ in copies if model.bytes), default=1))


def aligned(model):
    return Model(model.bytes, model.lb, model.ub + -model.extent % model.alignment, model.alignment)


def item(datatype):
    return datatype, Model([*range(datatype.size)], 0, datatype.size, datatype.size)


small = st.integers(0, 3)
places = st.lists(st.integers(-6, 12), max_size=3)


KINDS = ["contiguous", "vector", "hvector", "indexed", "hindexed", "blocks", "struct", "resized"]


@st.composite
def derived(draw, bases):
    """A datatype and its model."""
    datatype, model = draw(bases)
    kind = draw(
        st.sampled_from(["contiguous", "vector", "hvector", "indexed", "hindexed", "blocks", "struct", "resized"])
    )
    if kind == "contiguous":
        count = draw(small)
        return datatype.Create_contiguous(count), expanded([(model, 0, count)])
    if kind in ("vector", "hvector"):
        count, length, stride = draw(small), draw(small), draw(st.integers(-5, 5))
        unit = model.extent if kind == "vector" else 1
        made = getattr(datatype, f"Create_{kind}")(count, length, stride)
        return made, expanded([(model, k * stride * unit, length) for k in range(count)])
    displacements = draw(places)
    lengths = draw(st.lists(small, min_size=len(displacements), max_size=len(displacements)))
    if kind in ("indexed", "hindexed"):
        unit = model.extent if kind == "indexed" else 1
        made = getattr(datatype, f"Create_{kind}")(lengths, displacements)
        return made, expanded([(model, d * unit, n) for d, n in zip(displacements, lengths, strict=True)])
    if kind == "blocks":
        length = draw(small)
        made = datatype.Create_indexed_block(length, displacements)
        return made, expanded([(model, d * model.extent, length) for d in displacements])
    if kind == "resized":
        lb, extent = draw(st.integers(-8, 8)), draw(st.integers(1, 40))
        return datatype.Create_resized(lb, extent), Model(model.bytes, lb, lb + extent, model.alignment)
    others = [draw(bases) for _ in displacements]
    made = Datatype.Create_struct(lengths, displacements, [other for other, _ in others])
    parts = [(other, d, n) for (_, other), d, n in zip(others, displacements, lengths, strict=True)]
    return made, aligned(expanded(parts))


items = st.sampled_from([CHAR, SHORT, INT, DOUBLE]).map(item)
datatypes = st.recursive(items, derived, max_leaves=5)


@given(datatypes, st.integers(0, 3), st.data())
@settings(max_examples=100)
def test_a_datatype_moves_the_bytes_of_its_type_map_in_order(pair, count, data):
    datatype, model = pair
    datatype.Commit()
    assert (datatype.size, datatype.Get_extent()) == (len(model.bytes), (model.lb, model.extent))
    if model.bytes:
        assert (datatype.true_lb, datatype.true_ub) == (min(model.bytes), max(model.bytes) + 1)
    reached = [k * model.extent + offset for k in range(count) for offset in model.bytes]
    start = -min(reached, default=0)
    memory = np.random.default_rng(count).integers(0, 256, max(reached, default=0) + start + 9, np.uint8)
    part = Elements.placed(memory, start, count, datatype._known())
    chosen = np.array(reached, dtype=int) + start
    assert part.nbytes == len(reached)
    assert part.packed().tolist() == memory[chosen].tolist()

    if len(set(reached)) == len(reached):  # else it must not be received into
        came = np.arange(data.draw(st.integers(0, part.nbytes)), dtype=np.uint8)
        expected = memory.copy()
        expected[chosen[: came.size]] = came
        room = part.room()[: came.size]
        room[:] = came
        part.store(room)
        assert memory.tolist() == expected.tolist()


@given(datatypes)
@settings(max_examples=20)
def test_a_pickled_datatype_is_the_same(pair):
    datatype, _ = pair
    again = pickle.loads(pickle.dumps(datatype))
    assert again.Get_envelope() == datatype.Get_envelope()
    assert (again.size, again.Get_extent()) == (datatype.size, datatype.Get_extent())
    assert again.is_predefined == (again == datatype)


@pytest.mark.parametrize(
    ("expression", "size", "lb", "extent", "true_lb", "true_extent"),
    [
        ("INT.Create_contiguous(3)", 12, 0, 12, 0, 12),
        ("INT.Create_vector(2, 3, -4)", 24, -16, 28, -16, 28),
        ("DOUBLE.Create_hvector(3, 1, 20)", 24, 0, 48, 0, 48),
        ("SHORT.Create_indexed([2, 0, 1], [5, 1, 0])", 6, 0, 14, 0, 14),
        ("INT.Create_hindexed_block(2, [40, 3])", 16, 3, 45, 3, 45),
        ("Datatype.Create_struct([1, 1], [0, 8], [DOUBLE, CHAR])", 9, 0, 16, 0, 9),
        ("Datatype.Create_struct([2, 1], [4, 24], [CHAR, SHORT])", 4, 4, 22, 4, 22),
        ("INT.Create_subarray([4, 5], [2, 3], [1, 2])", 24, 0, 80, 28, 32),
        ("INT.Create_subarray([4, 5], [2, 3], [1, 2], ORDER_F)", 24, 0, 80, 36, 40),
        ("INT.Create_resized(-4, 20).Create_vector(2, 1, 2)", 8, -4, 60, 0, 44),
        ("SHORT_INT", 6, 0, 8, 0, 8),
        ("DOUBLE_INT.Create_contiguous(2)", 24, 0, 32, 0, 28),
        ("LONG_DOUBLE_INT", 20, 0, 32, 0, 20),
        ("Datatype.Create_struct([1, 1], [0, 4], [INT, INT.Create_resized(0, 6)])", 8, 0, 12, 0, 8),
        ("INT.Create_contiguous(0)", 0, 0, 0, 0, 0),
    ],
)
def test_sizes_and_bounds_are_those_of_mpich(expression, size, lb, extent, true_lb, true_extent):
    datatype = eval(expression, NAMES)
    assert (datatype.size, *datatype.Get_extent(), *datatype.Get_true_extent()) == (
        size,
        lb,
        extent,
        true_lb,
        true_extent,
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_subarray_is_the_slice_of_numpy(order):
    whole = np.asarray(np.arange(2 * 4 * 5).reshape(2, 4, 5), order=order)
    number = constants.ORDER_C if order == "C" else constants.ORDER_F
    part = predefined.LONG.Create_subarray([2, 4, 5], [1, 2, 3], [1, 1, 2], number).Commit()
    memory = whole.reshape(-1, order=order).view(np.uint8)
    packed = Elements.placed(memory, 0, 1, part._known()).packed().view(whole.dtype)
    assert packed.tolist() == whole[1:2, 1:3, 2:5].reshape(-1, order=order).tolist()


def test_the_shares_of_a_distributed_array_are_all_of_it():
    whole = np.arange(5 * 7)
    cyclic, block, default = constants.DISTRIBUTE_CYCLIC, constants.DISTRIBUTE_BLOCK, constants.DISTRIBUTE_DFLT_DARG
    shares = []
    for rank in range(4):
        share = predefined.LONG.Create_darray(4, rank, [5, 7], [block, cyclic], [default, 2], [2, 2]).Commit()
        shares.append(Elements.placed(whole.view(np.uint8), 0, 1, share._known()).packed().view(whole.dtype).tolist())
    rows = [[0, 1, 2], [3, 4]]
    columns = [[0, 1, 4, 5], [2, 3, 6]]
    assert shares == [[7 * i + j for i in rows[k // 2] for j in columns[k % 2]] for k in range(4)]


def test_an_element_without_gaps_is_not_copied():
    memory = np.zeros(64, np.uint8)
    for datatype in (DOUBLE, INT.Create_contiguous(4), INT.Create_vector(2, 2, 2), BYTE.Create_indexed([3, 5], [0, 3])):
        part = Elements.placed(memory, 8, 2, datatype.Commit()._known())
        assert not part.gaps
        assert np.shares_memory(part.packed(), memory)
        assert np.shares_memory(part.room(), memory)


def test_a_type_of_many_elements_needs_no_memory_for_them():
    wide = DOUBLE.Create_contiguous(2**31 - 1).Commit()
    assert len(wide._known().layout.runs.offsets) == 1
    assert BYTE.Create_contiguous(2**31 + 5).size == 2**31 + 5


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("INT.Create_contiguous(-1)", ERR_COUNT),
        ("INT.Create_indexed([1, -1], [0, 4])", ERR_COUNT),
        ("INT.Create_subarray([4], [5], [0])", ERR_ARG),
        ("INT.Create_subarray([4], [2], [1], 3)", ERR_ARG),
        ("INT.Create_darray(2, 3, [4], [DISTRIBUTE_BLOCK], [DISTRIBUTE_DFLT_DARG], [2])", ERR_RANK),
        ("INT.Free()", ERR_TYPE),
        ("DATATYPE_NULL.Get_size()", ERR_TYPE),
        ("INT.Get_contents()", ERR_TYPE),
        ("Datatype.Match_size(9, 4)", ERR_ARG),
        ("Datatype.Create_f90_integer(50)", ERR_ARG),
    ],
)
def test_bad_arguments_have_the_error_class_of_mpi(expression, code):
    with pytest.raises(Exception) as caught:
        eval(expression, NAMES)
    assert caught.value.Get_error_class() == code


def test_handles_of_a_freed_datatype():
    made = INT.Create_contiguous(2)
    other = Datatype(made)
    assert other == made
    made.Free()
    assert made == predefined.DATATYPE_NULL
    assert other.size == 8
