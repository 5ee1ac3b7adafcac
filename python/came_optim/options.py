"""From the entries of a param group to came_options: arguments.py checks types, layout.validate ranges.

A field of came_options comes from an argument, or from one element of it: {"beta1": "betas[0]", "seed": "seed"}.
"""

import re
from typing import Any, Dict, Mapping

from . import arguments, layout, structs

_ELEMENT = re.compile(r"(\w+)(?:\[(\d)\])?")

# Arguments that every optimizer has.
COMMON = ("weight_decay", "max_grad_norm", "seed", "momentum_dtype", "cautious", "stochastic_rounding", "maximize")


def element(group: Mapping[str, Any], argument: str) -> Any:
    """What a group has for an argument, or one element of it, such as "betas[0]"."""
    name, index = _ELEMENT.fullmatch(argument).groups()  # type: ignore[union-attr]
    return group[name] if index is None else group[name][int(index)]


def _option(field: str, argument: str, group: Mapping[str, Any]) -> Any:
    value = element(group, argument)
    if value is None:
        return "default" if field in structs.CHOICES else 0
    return arguments.real(argument, value) if field in structs.REALS else int(value) if field in structs.FLAGS else value


def from_group(algorithm: str, fields: Dict[str, str], group: Mapping[str, Any]) -> structs.Options:
    """came_options of a group; raises TypeError or ValueError that names the argument.

    >>> from_group("sm3", {"beta1": "betas[0]"}, {"betas": [1.5]})
    Traceback (most recent call last):
        ...
    ValueError: options: betas[0] is 1.5, expected a number in [0, 1); betas[0] is beta1
    """
    group = arguments.plain(algorithm, fields, {name: group[name] for name in group if name in _read(fields)}, {})
    values = {field: _option(field, argument, group) for field, argument in fields.items()}
    try:
        options = layout.options(algorithm, **values)
        layout.validate(options)
    except ValueError as error:
        raise ValueError(_in_our_words(str(error), fields)) from None
    return options


def _read(fields: Mapping[str, str]) -> Any:
    return {argument.split("[")[0] for argument in fields.values()}


def _in_our_words(message: str, fields: Mapping[str, str]) -> str:
    """An error of the library with the names of arguments for those of fields."""
    named = re.findall(r"\b(?:beta[123]|eps[12]|beta2_decay)\b", message)
    ours = re.sub(r"\b(beta[123]|eps[12]|beta2_decay)\b", lambda m: fields.get(m[0], m[0]), message)
    parts = [f"; {fields[field]} is {field}" for field in dict.fromkeys(named) if fields.get(field, field).endswith("]")]
    return ours + "".join(parts)
