"""How variables are split over servers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktrain.wire.layout import Variable, fingerprint, gather, scatter, split

shapes = st.lists(st.integers(0, 40), max_size=3).map(tuple)
variables = st.lists(
    st.builds(
        Variable,
        name=st.just("v"),
        shape=shapes,
        dtype=st.sampled_from(["float32", "float64", "float16"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)  # a shared machine may be slow
@given(variables, st.integers(1, 4), st.one_of(st.none(), st.integers(8, 5000)))
def test_every_value_is_in_one_part(
    found: list[Variable], num_servers: int, part_bytes: int | None
) -> None:
    parts = split(found, num_servers, part_bytes)
    counts = [np.zeros(variable.shape, np.int64) for variable in found]
    for part in parts:
        for piece in part.pieces:
            variable = found[piece.variable]
            assert variable.dtype == part.dtype
            counts[piece.variable].reshape(-1)[piece.start : piece.stop] += 1
        if part_bytes is not None:
            assert part.nbytes <= max(part_bytes, 8)
    assert all((count == 1).all() for count in counts)
    assert [part.number for part in parts] == list(range(len(parts)))


@settings(deadline=None)  # a shared machine may be slow
@given(variables, st.integers(1, 3), st.integers(8, 5000))
def test_values_come_back_where_they_were(
    found: list[Variable], num_servers: int, part_bytes: int
) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=v.shape).astype(v.dtype) for v in found]
    copies = [np.zeros_like(array) for array in arrays]
    for part in split(found, num_servers, part_bytes):
        scatter(part, gather(part, arrays), copies)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_a_large_variable_is_shared_by_all_servers() -> None:
    found = [Variable("w", (1000, 1000), "float32"), Variable("b", (1000,), "float32")]
    loads = [0, 0, 0]
    for part in split(found, 3):
        loads[part.server] += part.nbytes
    assert max(loads) - min(loads) <= 1 << 20
    assert min(loads) > 0


def test_small_variables_share_a_part() -> None:
    found = [Variable(f"b{n}", (10,), "float32") for n in range(100)]
    assert len(split(found, 1)) == 1
    assert {part.server for part in split(found, 2)} == {0, 1}
    assert len(split(found, 1, None)) == 100


def test_fingerprints_tell_models_apart() -> None:
    one = [Variable("a", (2, 3), "float32")]
    assert fingerprint(one) == fingerprint([Variable("a_1", (2, 3), "float32")])
    assert fingerprint(one) != fingerprint([Variable("a", (3, 2), "float32")])
    assert fingerprint(one) != fingerprint([Variable("a", (2, 3), "float64")])
