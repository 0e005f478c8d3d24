"""`python -m sparktrain.trainer FD FD`: takes a job from the agent, calls the user's function.

The agent's end of the socket is the trainer's lifeline: when it closes, this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from sparktrain.data.faults import BadFileError, BadRowError
from sparktrain.data.spill import SpillError
from sparktrain.data.trays import TrayReader
from sparktrain.spec import PERIODIC, PS, NodeSpec, make_tf_config
from sparktrain.trainer.context import Context
from sparktrain.trainer.detached import call_detached
from sparktrain.trainer.feed import Feed
from sparktrain.trainer.link import AgentLink
from sparktrain.trainer.watchdog import start_watchdog


def main(descriptor: int) -> int:
    link = AgentLink(descriptor)
    job = link.receive()
    function = link.receive_bytes(int(job["function_bytes"]))
    data = json.loads(link.receive_bytes(int(job["data_bytes"])))
    _extend_path(job["python_path"])
    told: list[BaseException] = []

    def tell(error: BaseException) -> None:
        if not told:
            told.append(error)
            _flush()  # the last lines belong to the error
            link.send(_describe(error, int(job["num_workers"])))

    try:
        value = _call(link, job, data, function, tell)
        body = _pickle(value, int(job["max_result_bytes"]))
    except BaseException as error:
        tell(error)
        _flush()
        return 1
    link.send({"kind": "returned", "value_bytes": len(body)}, body)
    link.wait_for_exit()
    return 0


def _call(
    link: AgentLink,
    job: dict[str, Any],
    data: dict[str, Any],
    function: bytes,
    tell: Callable[[BaseException], None],
) -> Any:
    """Makes the node ready, then calls the user's function with its context.

    Args:
        tell: Tells an error at once, where cleaning up behind it may take a while.
    """
    import cloudpickle

    if job["role"] == PS and job["distribution"] == PERIODIC:
        from sparktrain.trainer.hold import hold_parameters

        return hold_parameters(link, job, function)
    if job["gpu_limit_mb"]:
        from sparktrain.trainer.gpus import limit_memory

        limit_memory(job["gpu_limit_mb"])
    if job.get("door") is not None:
        return call_detached(link, job, data, function, tell)
    if job["needs_strategy"]:
        import tensorflow  # noqa: F401 (loads while the nodes still meet)
    cluster = link.receive_cluster()
    node = NodeSpec(job["role"], job["index"])
    trays = TrayReader(job["trays"]) if job["trays"] is not None else None
    os.environ["TF_CONFIG"] = json.dumps(make_tf_config(node, cluster))
    context = Context(
        node=node,
        num_workers=job["num_workers"],
        cluster_spec=cluster,
        run_id=job["run_id"],
        run_dir=job["run_dir"],
        link=link,
        distributed=job["needs_strategy"] and node.rank is not None,
        feed=Feed(data["fed"], data["files"], trays, link.send),
        stores=link.find_stores(job["store_token"]),
        num_mirrors=job["num_mirrors"],
        events=job.get("events"),
    )
    link.watch(context.feed.handle)
    context.prepare()
    # Behind the strategy: opening the function imports the user's modules, which may compute.
    train_fn, context.args = cloudpickle.loads(function)
    try:
        with context.feed.explaining():
            return train_fn(context)
    finally:
        context.close()


class _ResultError(Exception):
    """The return value cannot be sent back."""


def _pickle(value: Any, limit_bytes: int) -> bytes:
    import cloudpickle

    try:
        body: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise _ResultError(
            f"the function returned a {type(value).__qualname__} that cannot be pickled:"
            f" {type(error).__name__}: {error}. Return plain values such as history.history,"
            " and save models with ctx.export(model)"
        ) from error
    if len(body) > limit_bytes:
        raise _ResultError(
            f"the function returned {len(body)} bytes, over the limit max_result_bytes="
            f"{limit_bytes}. Write large results below ctx.run_dir and return their path"
        )
    return body


def _describe(error: BaseException, num_workers: int) -> dict[str, Any]:
    """The error frame: what the driver will show of it."""
    # Not str(error): that is code of the error's class, and may fail itself.
    what = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SyntaxError):
        what = what.splitlines()[-1]
    frame: dict[str, Any] = {
        "kind": "error",
        "what_kind": "exception",
        "what": _shorten(what, 2000),
        "traceback": _shorten("".join(traceback.format_exception(error)), 50_000),
        "is_echo": num_workers > 1 and _is_echo(error),
    }
    if isinstance(error, (BadFileError, BadRowError, SpillError)):
        frame.update(what_kind="data", what=_shorten(str(error).rstrip("."), 2000))
    elif isinstance(error, _ResultError):
        frame.update(what_kind="result", what=_shorten(str(error), 2000))
    elif isinstance(error, SystemExit):
        code = int(error.code if isinstance(error.code, int) else error.code is not None)
        frame.update(
            what_kind="exit",
            exit_code=code,
            what=f"the function called sys.exit({error.code!r}) instead of returning",
        )
    return frame


def _shorten(text: str, limit: int) -> str:
    """Both ends of a text: a frame has a limit, and an error's message may be anything."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    return f"{text[: limit // 2]} [{left_out} characters left out] {text[-limit // 2 :]}"


def _is_echo(error: BaseException) -> bool:
    """Whether this is how TensorFlow tells that another node is gone."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
        return False
    lost = (
        tensorflow.errors.UnavailableError,
        tensorflow.errors.AbortedError,
        tensorflow.errors.CancelledError,
        tensorflow.errors.DeadlineExceededError,
    )
    return isinstance(error, lost) or "Collective ops is aborted" in str(error)


def _extend_path(entries: list[str]) -> None:
    for entry in entries:
        if entry not in sys.path and os.path.exists(entry):  # noqa: PTH110 (zip files too)
            sys.path.append(entry)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


if __name__ == "__main__":
    start_watchdog(int(sys.argv[2]))
    sys.exit(main(int(sys.argv[1])))
