"""What a model remembers of its training: what goes in, what comes out, what classes there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparktrain.errors import ConfigError
from sparktrain.scoring.spec import ModelInfo

#: Of what is saved. Readers refuse a higher one.
FORMAT = 1


@dataclass(frozen=True)
class LabelContract:
    """One output that was trained with labels.

    Attributes:
        task: "classification", "regression" or "values".
        classes: Names of the classes by position; empty if they have none.
        is_logits: Whether the output is not yet a probability.
    """

    column: str
    output: str
    task: str
    num_classes: int
    classes: tuple[Any, ...]
    is_logits: bool


@dataclass(frozen=True)
class Contract:
    """All of it.

    Attributes:
        feeds: (input, columns) in the order of the model's inputs.
        moments: Column -> mean and variance, which the model itself takes care of.
        versions: Of what it was trained with.
    """

    info: ModelInfo
    feeds: tuple[tuple[str, tuple[str, ...]], ...]
    labels: tuple[LabelContract, ...]
    weight: str | None = None
    moments: Mapping[str, Mapping[str, list[float]]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    run_dir: str = ""
    stopped: str = ""
    #: What shows the events of the fit; empty for those in the run directory.
    board_command: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for _, names in self.feeds for name in names))

    def to_json(self) -> str:
        values = {
            "format": FORMAT,
            "info": self.info.to_dict(),
            "feeds": [[name, list(columns)] for name, columns in self.feeds],
            "labels": [vars(label) | {"classes": list(label.classes)} for label in self.labels],
            "weight": self.weight,
            "moments": self.moments,
            "versions": self.versions,
            "run_dir": self.run_dir,
            "stopped": self.stopped,
            "board_command": self.board_command,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str, path: str) -> Contract:
        """Raises ConfigError for what was written by a newer version, or is none."""
        try:
            values = json.loads(text)
            found = int(values.pop("format"))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(
                problem=f"The model at {path!r} cannot be read: {type(error).__name__}: {error}.",
                advice="Save it again; its description is damaged.",
            ) from error
        check_format(found, values.get("versions", {}), path)
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Contract:
        kept = dict(values)
        kept["info"] = ModelInfo.from_dict(kept["info"])
        kept["feeds"] = tuple((name, tuple(columns)) for name, columns in kept["feeds"])
        kept["labels"] = tuple(
            LabelContract(**{**label, "classes": tuple(label["classes"])})
            for label in kept["labels"]
        )
        return cls(**kept)


def check_format(found: int, versions: Mapping[str, str], path: str) -> None:
    if found > FORMAT:
        writer = versions.get("sparktrain", "a later version")
        raise ConfigError(
            problem=f"{path!r} has the format {found}, written by sparktrain {writer}; this one"
            f" reads up to {FORMAT}.",
            advice="Install that version of sparktrain, or a later one.",
        )
