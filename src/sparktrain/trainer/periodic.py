"""Periodic synchronisation: a callback that meets the parameter servers every few steps.

Between two meetings a worker trains alone, with an optimizer of its own. Nobody waits for
anybody: a worker that is late or lost is only missing, and one that starts again takes the
servers' parameters first.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow.flight as fl

from sparktrain.errors import ConfigError
from sparktrain.trainer.sync_rules import DELTA, RULES, find_rate, find_taken, to_mean, to_send
from sparktrain.trainer.weights import copy, is_exact, is_free, make_room, read, replace
from sparktrain.wire.layout import Part, Variable, gather, scatter
from sparktrain.wire.parameters import ParameterClient, Stores

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: How long servers may be out of reach before that is an error; what a server itself says is one
#: at once.
OUTAGE_S = 60.0
_OUTAGES = (fl.FlightError, OSError)
_REFUSALS = (fl.FlightServerError, fl.FlightUnauthenticatedError, fl.FlightUnauthorizedError)
#: How long the others wait for the chief's first weights.
FIRST_WAIT_S = 600.0
POLL_S = 0.2
T = TypeVar("T")


def find_variables(model: Any) -> tuple[list[Any], list[Variable]]:
    """What of a model is synchronised: its weights, and statistics that are numbers.

    Counters and the states of random generators stay each worker's own, as the optimizer does.
    """
    found, told = [], []
    for variable in model.variables:
        value = read(variable)
        if np.issubdtype(value.dtype, np.floating):
            name = str(getattr(variable, "path", variable.name))
            found.append(variable)
            told.append(Variable(name, value.shape, value.dtype.name))
    return found, told


class Synchroniser:
    """One worker's weights and the parameter servers; knows of Keras only its variables.

    Args:
        space: The model's name on the servers.
        rate: See sync_rules.combine().
    """

    def __init__(self, context: Context, space: str, model: Any, rule: str, rate: float) -> None:
        self._context = context
        self._rule, self._rate = rule, rate
        self._variables, self._told = find_variables(model)
        trained = {id(variable) for variable in model.trainable_variables}
        self._statistics = [n for n, v in enumerate(self._variables) if id(v) not in trained]
        self._client = ParameterClient(
            context.stores or Stores(), space, self._told, context.rank or 0
        )
        #: What this worker had after the last meeting.
        self._base: list[Any] = []
        #: Memory for the next answers, so that not all of a model needs fresh pages each time.
        self._spare: list[Any] = []
        #: Parts whose answers were lost, with what this worker had when it brought them.
        self._unsure: list[tuple[Part, Any]] = []
        self._failing_since: float | None = None
        self.num_syncs = 0

    def join(self) -> None:
        """The first weights are those of rank 0; who comes later takes what is there."""
        if not self._insist(self._client.open):
            if self._context.rank == 0:
                self._insist(lambda: self._client.put(self._read()))
            else:
                self._wait_for_first()
        self.pull()

    def _wait_for_first(self) -> None:
        deadline = time.monotonic() + FIRST_WAIT_S
        while not all(state["is_ready"] for state in self._insist(self._client.states)):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"No weights came from the chief within {FIRST_WAIT_S:g} s: its fit has not"
                    " begun."
                )
            if self._context.should_stop:
                raise RuntimeError("The run ends before the chief's first weights came.")
            time.sleep(POLL_S)

    def pull(self) -> None:
        """Takes the servers' weights as they are."""
        arrays = make_room(self._told)
        self._insist(lambda: self._client.pull(arrays))
        self._assign(arrays)

    def sync(self) -> None:
        """Meets the servers; an outage is passed over for a while, and training goes on."""
        try:
            self._settle()
        except _OUTAGES as error:
            self._check_outage(error)
            return
        own = self._read()
        taken, self._spare = self._spare, []
        if not taken or not is_free(taken):
            taken = make_room(self._told)
        answered: set[int] = set()
        brought = list(own)
        if self._rule == DELTA:  # statistics move by the mean; a sum would go too far
            for n in self._statistics:
                brought[n] = to_mean(own[n], self._base[n], self._context.num_workers)

        def get(part: Part) -> Any:
            values = gather(part, brought)
            if self._rule == DELTA:
                return to_send(DELTA, values, gather(part, self._base))
            return values

        def take(part: Part, values: Any) -> None:
            scatter(part, values, taken)
            answered.add(part.number)

        try:
            self._client.sync(self._rule, self._rate, get, take)
        except _OUTAGES as error:
            self._check_outage(error)
            # What was answered counts; the rest stays as it is until the next time.
            before = self._base
            missing = [part for part in self._client.parts if part.number not in answered]
            for part in missing:
                scatter(part, gather(part, own), taken)
            self._assign(taken)
            base = copy(self._base)
            for part in missing:
                scatter(part, gather(part, before), base)
            self._base = base
            self._unsure = [(part, gather(part, own)) for part in missing]
            return
        self._failing_since = None
        self.num_syncs += 1
        old = self._base
        self._assign(taken)
        self._spare = old

    def _settle(self) -> None:
        """Takes the answers that were lost, with what was learnt since on top of them.

        What reached the servers in an outage is not brought again: it would count twice.
        """
        if not self._unsure:
            return
        reached = self._client.settle()
        lost = [(part, values) for part, values in self._unsure if part.number in reached]
        if lost:
            served = make_room(self._told)
            self._client.pull(served)
            own, before = self._read(), self._base
            after = copy(own)
            learnt = []
            for part, brought in lost:
                taken = find_taken(self._rule, self._rate, brought, gather(part, served))
                learnt.append(gather(part, own) - brought)
                scatter(part, taken + learnt[-1], after)
            self._assign(after)
            base = copy(before)
            for (part, _), since in zip(lost, learnt, strict=True):
                scatter(part, gather(part, self._base) - since, base)
            self._base = base
        self._unsure = []

    def _insist(self, call: Callable[[], T]) -> T:
        """Tries again for a while, where there is nothing to go on with meanwhile."""
        while True:
            try:
                found = call()
            except _OUTAGES as error:
                self._check_outage(error)
                time.sleep(POLL_S)
            else:
                self._failing_since = None
                return found

    def _check_outage(self, error: Exception) -> None:
        if isinstance(error, _REFUSALS):
            raise error
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > OUTAGE_S:
            raise error

    def finish(self, wait_s: float, fit: int = 1, has_more: bool = True) -> None:
        """The end of a fit. The chief waits a while for the others, then all have the servers'.

        Args:
            fit: Which fit of this worker's it is, from 1 on.
            has_more: Whether there were steps after the last meeting. A worker without any has
                nothing to bring: it would only take back what others learnt since.
        """
        if has_more or self._failing_since is not None:
            self._bring_last()
        self._insist(lambda: self._client.leave(fit))
        deadline = time.monotonic() + (wait_s if self._context.rank == 0 else 0.0)
        while time.monotonic() < deadline and not self._context.should_stop:
            state = self._insist(self._client.states)[0]
            done = {worker for worker, fits in state["fits"] if fits >= fit} | set(state["gone"])
            if len(done) >= self._context.num_workers:
                break
            time.sleep(POLL_S)
        self.pull()

    def _bring_last(self) -> None:
        """Meets the servers. There is no next time that could make up for an outage."""
        before = self.num_syncs
        self.sync()
        while self.num_syncs == before and not self._context.should_stop:
            time.sleep(POLL_S)
            self.sync()

    def close(self) -> None:
        self._client.close()

    def _read(self) -> list[Any]:
        return [read(variable) for variable in self._variables]

    def _assign(self, arrays: Sequence[Any]) -> None:
        for variable, array in zip(self._variables, arrays, strict=True):
            replace(variable, array)
        # What the variable has, where its own type is not the one that travels.
        self._base = [
            array if is_exact(variable, array) else read(variable)
            for variable, array in zip(self._variables, arrays, strict=True)
        ]


def check_wishes(sync_interval: Any, rule: Any, alpha: Any, wait_s: Any) -> None:
    if not isinstance(sync_interval, int) or isinstance(sync_interval, bool) or sync_interval < 1:
        raise ConfigError(
            problem=f"ctx.parameter_server() got sync_interval={sync_interval!r}.",
            advice="Expected a whole number of steps, at least 1.",
        )
    if rule not in RULES:
        raise ConfigError(
            problem=f"ctx.parameter_server() got rule={rule!r}.",
            advice=f"Expected one of {', '.join(map(repr, RULES))}.",
        )
    is_number = isinstance(alpha, (int, float)) and not isinstance(alpha, bool)
    if alpha is not None and not (rule == "elastic" and is_number and 0 < alpha < 1):
        raise ConfigError(
            problem=f"ctx.parameter_server() got rule={rule!r} and alpha={alpha!r}.",
            advice="alpha is for rule='elastic', and between 0 and 1.",
        )
    is_number = isinstance(wait_s, (int, float)) and not isinstance(wait_s, bool)
    if not is_number or not wait_s >= 0:
        raise ConfigError(
            problem=f"ctx.parameter_server() got wait_s={wait_s!r}.",
            advice="Expected a number of seconds, 0 for none.",
        )


def make_sync_callback(
    keras: Any,
    context: Context,
    model: Any,
    space: str,
    *,
    sync_interval: int,
    rule: str,
    alpha: float | None,
    wait_s: float,
    fits: Iterator[int] | None = None,
) -> Any:
    """An instance for the given Keras.

    Args:
        fits: Numbers the fits of the model, from 1 on; shared by all its callbacks.
    """
    if context.rank is None:
        raise ConfigError(
            problem=f"ctx.parameter_server() was called on {context.role}:{context.index}.",
            advice="It is for the nodes that train.",
        )
    if not hasattr(model, "trainable_variables"):
        raise ConfigError(
            problem=f"ctx.parameter_server() got a {type(model).__name__}.",
            advice="Expected a Keras model.",
        )
    check_wishes(sync_interval, rule, alpha, wait_s)
    rate = find_rate(rule, context.num_workers, alpha)
    numbers = fits if fits is not None else itertools.count(1)

    class ParameterServer(keras.callbacks.Callback):  # type: ignore[misc]
        """Meets the parameter servers every few steps, and at both ends of fit."""

        def __init__(self) -> None:
            super().__init__()
            self._meeting: Synchroniser | None = None
            #: Steps since the last meeting, and where the epoch was when they were counted.
            self._steps = self._seen = 0
            self.num_syncs = 0

        def on_train_begin(self, logs: Any = None) -> None:
            if not model.built:
                raise ConfigError(
                    problem=f"The model {model.name!r} has no input shape yet.",
                    advice="Give it a keras.Input, or call model.build(...) before fit.",
                )
            if self._meeting is not None:  # of a fit that ended with an error
                self._meeting.close()
            self._meeting = Synchroniser(context, space, model, rule, rate)
            self._steps = 0
            try:
                self._meeting.join()
            except BaseException:
                self._meeting.close()
                raise

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._seen = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            # Keras may take several steps at once, and tells the number of the last one.
            self._steps += batch + 1 - self._seen
            self._seen = batch + 1
            if self._steps >= sync_interval and self._meeting is not None:
                self._steps = 0
                self._meeting.sync()
                self.num_syncs = self._meeting.num_syncs

        def on_train_end(self, logs: Any = None) -> None:
            if self._meeting is not None:
                meeting, self._meeting = self._meeting, None
                try:
                    meeting.finish(wait_s, next(numbers), self._steps > 0)
                    self.num_syncs = meeting.num_syncs
                finally:
                    meeting.close()

    return ParameterServer()
