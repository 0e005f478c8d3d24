"""A model that Spark Connect has no room for is refused before anything is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import sparktrain as st
from sparktrain.driver.scores import CONNECT_BYTES
from sparktrain.scoring.spec import KERAS, ModelInfo, ModelSource, TensorInfo


class Session:
    """Looks like one of Connect; whoever asks it for anything fails."""


Session.__module__ = "pyspark.sql.connect.session"
INFO = ModelInfo((TensorInfo("x", "float32"),), (TensorInfo("y", "float32"),))


@pytest.mark.parametrize("contract", [None, SimpleNamespace(info=INFO)])
@pytest.mark.parametrize("by_function", [True, False])
def test_it_is_named_with_its_size(contract: Any, by_function: bool) -> None:
    """Both of an estimator, which knows its inputs, and any other, which a worker looks at."""
    source = ModelSource(KERAS, "large.keras", "key", packed=bytes(CONNECT_BYTES + 1))
    model = SimpleNamespace(source=source, contract=contract)
    spark: Any = Session()
    frame: Any = SimpleNamespace(sparkSession=spark, mapInArrow=None, columns=["x"])
    with pytest.raises(st.ModelError, match=r"large.keras'.*104,857,601 bytes.*Spark Connect"):
        st.predict_udf(model, spark=spark) if by_function else st.predict(frame, model)
