"""cluster.predict(): a lazy DataFrame whose tasks ask the trainers of a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparktrain.agent.asking import AskTask
from sparktrain.agent.failure import find_failure
from sparktrain.data.tables import Table, table
from sparktrain.driver import failures
from sparktrain.driver.arguments import check_limit
from sparktrain.driver.arrow_jobs import map_in_arrow
from sparktrain.driver.group import Group
from sparktrain.driver.tables import name_tables, plan_frame
from sparktrain.driver.tagged import TaggedJob
from sparktrain.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TICK_S = 0.1
CANCEL_WAIT_S = 20.0
CAUSE_WAIT_S = 8.0
#: After this, the user is told what is waited for.
NOTE_S = 20.0


def predict(
    group: Group, data: Any, inputs: Any, outputs: Any, timeout_s: float | None = None
) -> DataFrame:
    """Checks what is asked, finds out what is answered, and makes the DataFrame.

    Args:
        timeout_s: How long finding out may take.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    check_limit("predict", "timeout_s", timeout_s)
    declared = data if isinstance(data, Table) else None
    frame = declared.frame if declared is not None else data
    wishes = declared if declared is not None else table(frame, columns=inputs)
    if declared is not None and inputs is not None:
        raise ConfigError(
            problem="predict() got inputs= beside sparktrain.table().",
            advice="Name the columns in one place: st.table(df, columns=[...]).",
        )
    checked = name_tables({"predict": wishes})["predict"]
    if not isinstance(checked, Table):
        raise TypeError(type(checked).__name__)
    asked, columns = plan_frame("predict", checked)
    if outputs is None:
        answers = _probe(group, asked, AskTask(group.target, columns, None), timeout_s)
    elif isinstance(outputs, StructType):
        answers = outputs
    else:
        answers = _parse(outputs)
    clash = sorted(set(answers.names) & set(frame.columns))
    if clash:
        raise ConfigError(
            problem=f"The answers {', '.join(clash)} have names that the DataFrame has as well.",
            advice="Answer with a dict of other names, or drop these columns first.",
        )
    task = AskTask(group.target, columns, to_arrow_schema(answers))
    schema = StructType([*frame.schema.fields, *answers.fields])
    return map_in_arrow(frame, task, schema)


def _describe_wait(group: Group, seconds: float) -> str:
    names = ", ".join(node.name for node in group.fed)
    return (
        f"predict() asked about one row, and had no answer after {seconds:g} s. Functions answer"
        f" when they call ctx.serve(), which {names} may not have done yet; what is computed"
        " before may also take long. Give outputs='prediction array<float>' to save the question"
    )


def _parse(outputs: Any) -> Any:
    from pyspark.sql.types import StructType

    try:
        return StructType.fromDDL(outputs)
    except Exception as error:
        raise ConfigError(
            problem=f"predict() got outputs={outputs!r}: {error}.",
            advice="Expected a schema such as 'prediction array<float>'.",
        ) from error


def _probe(group: Group, frame: Any, task: AskTask, timeout_s: float | None) -> Any:
    """Asks about the first row: what comes back tells the columns of the answers."""
    from pyspark.sql.pandas.types import from_arrow_schema

    group.check()
    tag = f"sparktrain-{group.plan.run_id}-probe"
    title = f"sparktrain cluster {group.plan.run_id}: what is answered?"
    job = TaggedJob(
        group.spark,
        lambda: map_in_arrow(frame.limit(1), task, "schema binary").collect(),
        tag,
        title,
        group.hub.wake,
    )
    started = time.monotonic()
    is_noted = False
    job.start()
    try:
        while not job.is_done():
            group.hub.wait(TICK_S)
            group.check()
            waited_s = time.monotonic() - started
            if timeout_s is not None and waited_s > timeout_s:
                raise TimeoutError(f"{_describe_wait(group, timeout_s)}.")
            if waited_s > NOTE_S and not is_noted:
                is_noted = True
                group.hub.add_lines("sparktrain", [f"{_describe_wait(group, NOTE_S)}; waiting"])
    finally:
        if not job.is_done():
            job.cancel()
            job.join(CANCEL_WAIT_S)
    if job.error is not None:
        failure = find_failure(str(job.error))
        if failure is None or failure.kind != "data":
            group.wait_for_cause(CAUSE_WAIT_S if failure is not None else 0.0)
        if failure is None:
            raise job.error
        raise failures.to_error(failure, group.record, None) from job.error
    if not job.value:
        raise ConfigError(
            problem="predict() got a DataFrame without rows: what is answered is not known.",
            advice="Give outputs='prediction array<float>', or what your function answers.",
        )
    return from_arrow_schema(pa.ipc.read_schema(pa.py_buffer(bytes(job.value[0].schema))))
