"""What all messages of the control link are, and how their fields are checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Checks = Mapping[str, Callable[[object], bool]]


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_lines(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def is_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(is_number(number) for number in value.values())


def is_failure(value: object) -> bool:
    return isinstance(value, dict) and all(
        check(value.get(name)) for name, check in _FAILURE_CHECKS.items()
    )


def is_differences(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(holders, dict) and all(is_lines(names) for names in holders.values())
        for holders in value.values()
    )


def is_card(value: object) -> bool:
    """As the driver uses it: where the node is, what it runs, and its door."""
    if not isinstance(value, dict) or not is_text(value.get("host")):
        return False
    versions, door = value.get("versions"), value.get("door")
    if not isinstance(versions, dict) or not isinstance(door, dict):
        return False
    texts = [*versions.values(), *(door.get(name) for name in ("node", "host", "path"))]
    texts.append(door.get("certificate"))
    return all(map(is_text, texts)) and is_count(value.get("port")) and is_count(door.get("port"))


def maybe(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


#: The fields of spec.Failure as they arrive.
_FAILURE_CHECKS: Checks = {
    **dict.fromkeys(("node", "host", "kind", "what"), is_text),
    "exit_code": maybe(lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "signal": maybe(is_count),
    "traceback": is_text,
    "tail": is_lines,
    "is_echo": lambda value: isinstance(value, bool),
    "differences": maybe(is_differences),
}


@dataclass(frozen=True)
class Message:
    """Base of all messages."""

    kind: ClassVar[str] = ""
    checks: ClassVar[Checks] = {}

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}
