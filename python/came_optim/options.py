"""From the entries of a param group to came_options: types are checked here, ranges by layout.validate.

A field of came_options comes from an argument, or from one element of it: {"beta1": "betas[0]", "seed": "seed"}.
"""

import re
from numbers import Real
from typing import Any, Dict, Iterable, Mapping

from . import layout, native

_DTYPE_WORDS = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "int8": "int8"}
_ELEMENT = re.compile(r"(\w+)(?:\[(\d)\])?")

# Arguments that every optimizer has beside its own.
COMMON = ("weight_decay", "max_grad_norm", "seed", "momentum_dtype", "cautious", "stochastic_rounding", "maximize")


def element(group: Mapping[str, Any], argument: str, fields: Iterable[str]) -> Any:
    """What a group has for an argument, or one element of it, such as "betas[0]"."""
    name, index = _ELEMENT.fullmatch(argument).groups()  # type: ignore[union-attr]
    value = group[name]
    if index is None:
        return value
    count = sum(other.startswith(f"{name}[") for other in fields)
    try:
        return value[int(index)]
    except (TypeError, IndexError, KeyError):
        raise ValueError(f"{name}: {value!r} given, expected {count} numbers") from None


def _checked(field: str, argument: str, value: Any) -> Any:
    if field in native.CHOICES:
        text = "default" if value is None else str(value).replace("torch.", "")
        return _DTYPE_WORDS.get(text, text)
    if value is None:
        return 0
    if field in native.FLAGS or field == "seed":
        wanted = (bool, int) if field in native.FLAGS else (int,)
        if not isinstance(value, wanted) or (field == "seed" and not 0 <= value < 2**64):
            expected = "True or False" if field in native.FLAGS else "a whole number from 0 to 2**64 - 1"
            raise (ValueError if isinstance(value, int) else TypeError)(
                f"{argument}: {value!r} given, expected {expected}"
            )
        return int(value)
    if hasattr(value, "item") and getattr(value, "numel", lambda: 1)() == 1:
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{argument}: {value!r} ({type(value).__name__}) given, expected a number")
    return float(value)


def from_group(word: str, fields: Dict[str, str], group: Mapping[str, Any]) -> native.Options:
    """came_options of a group; raises TypeError or ValueError that names the argument.

    >>> from_group("sm3", {"beta1": "betas[0]"}, {"betas": (1.5, 0.9)})
    Traceback (most recent call last):
        ...
    ValueError: options: betas[0] is 1.5, expected a number in [0, 1)
    """
    values = {field: _checked(field, argument, element(group, argument, fields.values())) for field, argument in fields.items()}
    try:
        options = layout.options(word, **values)
        layout.validate(options)
    except ValueError as error:
        message = re.sub(r"\b(beta[123]|eps[12]|beta2_decay)\b", lambda m: fields.get(m[0], m[0]), str(error))
        raise ValueError(message) from None
    return options
