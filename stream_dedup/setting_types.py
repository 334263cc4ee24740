"""How settings are declared, and the types of those that people write as text, as durations.

Errors do not repeat a value: it may be a secret that got into the wrong setting.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w|)")
_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
#: Steps that ``clean`` may name.
CLEAN_STEPS = ("markup", "urls", "numbers", "boilerplate")
_SHINGLE = re.compile(r"(word|char):(\d{1,2})")


def setting(default: Any, group: str, description: str, **constraints: Any) -> Any:
    """Describe one setting; ``group`` says which commands offer it as a flag."""
    return Field(
        default, description=description, json_schema_extra={"group": group}, **constraints
    )


def parse_duration(value: object) -> object:
    """Turn ``"30d"``, ``"250ms"`` or ``"90"`` (seconds) into seconds, a float."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        msg = "this is not a duration; write a number and a unit, such as 250ms, 90s or 30d"
        raise ValueError(msg)
    return float(match[1]) * _SECONDS[match[2]]


def _check_shingle(value: str) -> str:
    match = _SHINGLE.fullmatch(value)
    limits = {"word": (1, 8), "char": (2, 16)}
    if match is not None:
        low, high = limits[match[1]]
        if low <= int(match[2]) <= high:
            return f"{match[1]}:{int(match[2])}"
    msg = "this is not a shingle; write word:1 to word:8 or char:2 to char:16"
    raise ValueError(msg)


def read_number(value: object) -> object:
    """Read the number that a flag or an environment variable has as a string."""
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _check_clean(value: str) -> str:
    steps = [step.strip() for step in value.split(",")] if value.strip() else []
    for place, step in enumerate(steps, 1):
        if step not in CLEAN_STEPS:
            msg = f"step {place} is unknown; write {', '.join(CLEAN_STEPS)} with commas between"
            raise ValueError(msg)
    if steps.count("boilerplate") > 1:
        msg = "the step boilerplate can be there once only"
        raise ValueError(msg)
    return ",".join(steps)


Duration = Annotated[float, BeforeValidator(parse_duration), Field(gt=0, allow_inf_nan=False)]
DurationOrZero = Annotated[float, BeforeValidator(parse_duration), Field(ge=0, allow_inf_nan=False)]
Shingle = Annotated[str, AfterValidator(_check_shingle)]
Clean = Annotated[str, AfterValidator(_check_clean)]
