"""Arguments as trainers pass them, from YAML, command lines, numpy or OmegaConf, become plain Python values; ranges are checked by
the library.  Needs no torch.

Texts such as "1e-4", "true", "none" and "0.9, 0.999" are parsed, sequences become tuples of floats, `beta2` becomes the second number of
`betas`.  A tensor of torch that is given for one number stays a tensor, since programs write to it between steps.
"""

import math
import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import layout, structs
from .notices import warn

_MODES = {"foreach", "fused", "capturable", "differentiable"}
_FLAGS = {*structs.FLAGS, *_MODES, "amsgrad", "decoupled_weight_decay"}
# Where None means something.
_OPTIONAL = {"max_grad_norm", "momentum_dtype", "second_moment_dtype", "foreach", "fused"}
_OPTIONAL_OF = {"adafactor": {"lr", "decay_rate", "beta1", "relative_step"}, "sm3": {"beta1"}}
# Arguments of any optimizer: an entry that the group's own does not take is an error.
_ANY = {*structs.REALS, *structs.FLAGS, *structs.CHOICES, "betas", "decay_rate", "amsgrad"}

_DTYPE_NAMES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16"}
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_ADAMS_EPS_SQUARED = 1e-16


def sequences(fields: Mapping[str, str]) -> Dict[str, List[str]]:
    """Arguments of several numbers, and the names of these: {"betas": ["beta1", "beta2"]}."""
    found: Dict[str, List[str]] = {}
    for field, argument in fields.items():
        if argument.endswith("]"):
            found.setdefault(argument.split("[")[0], []).append(field)
    return found


def shown(value: Any) -> str:
    """What was given, in a line."""
    try:
        text = re.sub(r"\s+", " ", repr(value))
    except Exception:  # any object may raise
        text = object.__repr__(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _wrong(name: str, value: Any, expected: str) -> str:
    return f"{name}: {shown(value)} ({type(value).__name__}) given, expected {expected}"


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in ("none", "null"))


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "numel") and hasattr(value, "requires_grad")


def _item(value: Any) -> Any:
    """The number in a numpy scalar, or in a tensor or an array of one; anything else as it is."""
    count = getattr(value, "numel", None)
    size = count() if callable(count) else getattr(value, "size", None)
    return value.item() if isinstance(size, int) and size == 1 and callable(getattr(value, "item", None)) else value


def _plain_item(name: str, value: Any, expected: str) -> Any:
    try:
        return _item(value)
    except Exception as error:  # a tensor without memory, or any object
        raise TypeError(f"{_wrong(name, value, expected)}: {error}") from None


def real(name: str, value: Any) -> float:
    """A value as a number."""
    number = _plain_item(name, value, "a number")
    if isinstance(number, str):
        try:
            return float(number)
        except ValueError:
            pass
    elif isinstance(number, Real) and not isinstance(number, bool):
        try:
            return float(number)
        except (ArithmeticError, ValueError):
            raise ValueError(_wrong(name, value, "a number that a float64 holds")) from None
    raise TypeError(_wrong(name, value, "a number"))


def _flag(name: str, value: Any) -> bool:
    flag = _plain_item(name, value, "True or False")
    if isinstance(flag, bool) or (isinstance(flag, Integral) and flag in (0, 1)):
        return bool(flag)
    if isinstance(flag, str) and flag.strip().lower() in _TRUTHS:
        return _TRUTHS[flag.strip().lower()]
    raise (ValueError if isinstance(flag, Integral) else TypeError)(f"{name}: {shown(value)} given, expected True or False")


def _seed(name: str, value: Any) -> int:
    expected = "a whole number from 0 to 2**64 - 1"
    number = _plain_item(name, value, expected)
    if isinstance(number, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", number):
        number = int(number)
    if not isinstance(number, Integral) or isinstance(number, bool) or not 0 <= number < 2**64:
        raise (ValueError if isinstance(number, Integral) else TypeError)(f"{name}: {shown(value)} given, expected {expected}")
    return int(number)


def _choice(name: str, value: Any) -> str:
    """A value of one of libcame's choices, by name; types of torch are understood."""
    expected = "a name" if name == "view" else "a name, a dtype of torch or None"
    if not isinstance(value, str) and type(value).__name__ != "dtype":
        raise TypeError(_wrong(name, value, expected))
    text = str(value).strip().lower().replace("torch.", "")
    if not re.fullmatch("[a-z0-9_]+", text):  # what C could not read as it is
        raise ValueError(_wrong(name, value, expected))
    return text if name == "view" else _DTYPE_NAMES.get(text, text)


def _elements(value: Any) -> Optional[List[Any]]:
    """The elements of a sequence, or of a text that is one; None if it is neither."""
    if isinstance(value, str):
        text, brackets = value.strip(), value.strip()[:1] + value.strip()[-1:]
        parts = (text[1:-1] if brackets in ("()", "[]") else text).split(",")
        is_one = len(parts) > 1 or brackets == "[]"
        return (parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts) if is_one else None
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return list(value)
    return value.tolist() if getattr(value, "ndim", 0) == 1 and callable(getattr(value, "tolist", None)) else None


def _numbers(algorithm: str, name: str, parts: List[str], value: Any, base: Mapping[str, Any]) -> Tuple[float, ...]:
    """As many floats as the optimizer has; docs/python.md says what a missing one becomes."""
    try:
        found = _elements(value)
    except Exception as error:  # a tensor without memory, or any sequence
        raise TypeError(f"{_wrong(name, value, f'{len(parts)} numbers')}: {error}") from None
    if found is None and name == "eps":
        return _eps_of_one(algorithm, parts, value, base)
    most = len(parts)
    if found is None or not (len(found) == most or (len(found) == 2 and most == 3)):
        other = {"eps": f", or {parts[0]} alone", "betas": ", or 2: beta3 is 1 - (1 - beta2) / 10 then" if most == 3 else ""}
        raise ValueError(f"{name}: {shown(value)} given, expected {most} numbers{other[name]}")
    numbers = [real(f"{name}[{k}]", element) for k, element in enumerate(found)]
    kept = [element if _is_tensor(element) else number for element, number in zip(found, numbers)]
    return tuple(kept) if len(kept) == most else (*kept, beta3_of(numbers[1]))


def _eps_of_one(algorithm: str, parts: List[str], value: Any, base: Mapping[str, Any]) -> Tuple[float, ...]:
    eps1 = real("eps", value.strip().strip("()") if isinstance(value, str) else value)
    made = (eps1, *_values(algorithm, "eps", parts, base)[1:])
    if eps1 > _ADAMS_EPS_SQUARED:
        warn(
            f"eps: {shown(value)} given alone is taken as eps1, which is added to the squared gradient.  Adam's eps, often of this "
            f"size, is added to a root, so that its square, {eps1 * eps1:g}, does the same here.  Write eps={made} if you mean it",
        )
    return made


def beta3_of(beta2: float) -> float:
    """What beta3 is where only beta2 is given: an average over ten times as many steps, 0.9999 for 0.999; below 1, as beta2.

    >>> beta3_of(0.999), beta3_of(0.95)
    (0.9999, 0.995)
    """
    return min(1 - (1 - beta2) / 10, math.nextafter(1, 0)) if beta2 < 1 else beta2


def _values(algorithm: str, name: str, parts: List[str], base: Mapping[str, Any]) -> List[float]:
    """What an argument of several numbers is where a group does not say."""
    if base.get(name) is not None:
        return list(_numbers(algorithm, name, parts, base[name], {}))
    defaults = layout.options(algorithm)
    return [float(getattr(defaults, part)) for part in parts]


def plain(algorithm: str, fields: Mapping[str, str], group: Mapping[str, Any], base: Mapping[str, Any]) -> Dict[str, Any]:
    """The entries of a group as plain values; `base` has what they are where the group does not say.

    >>> plain("adam", {"beta1": "betas[0]", "beta2": "betas[1]"}, {"lr": "1e-4", "beta2": "0.95"}, {"betas": [0.8, 0.9]})
    {'lr': 0.0001, 'betas': (0.8, 0.95)}
    """
    several = sequences(fields)
    aliases = {part for parts in several.values() for part in parts}
    own = {argument.split("[")[0] for argument in fields.values()} | {"lr"} | _MODES
    own |= {"amsgrad", "decoupled_weight_decay"} if algorithm in ("adam", "adamw") else set()
    made = {}
    for name, value in group.items():
        if name in own:
            made[name] = _plain(algorithm, name, several, value, base)
        elif name in _ANY - aliases:
            raise TypeError(f"{name}: {shown(value)} given, but {algorithm} has no such argument")
        elif name not in aliases:
            made[name] = value
    for name, parts in several.items():
        given = {part: group[part] for part in parts if part in group and not _is_none(group[part])}
        if not given:
            continue
        numbers = {part: real(part, value) for part, value in given.items()}
        if "beta2" in numbers and "beta3" in parts:
            numbers.setdefault("beta3", beta3_of(numbers["beta2"]))
        if name not in made:
            made[name] = tuple(numbers.get(part, value) for part, value in zip(parts, _values(algorithm, name, parts, base)))
            continue
        understood = tuple(numbers.get(part, value) if part in given else value for part, value in zip(parts, made[name]))
        raise ValueError(
            f"{' and '.join(f'{part}={shown(value)}' for part, value in given.items())} given together with "
            f"{name}={shown(group[name])}, which has {'it' if len(given) == 1 else 'them'}, too; write {name}={understood}, or leave "
            f"{name} out"
        )
    return made


def _plain(algorithm: str, name: str, several: Mapping[str, List[str]], value: Any, base: Mapping[str, Any]) -> Any:
    if name == "lr" and _is_tensor(value):  # on a device, reading it would wait
        return value
    if _is_none(value) and name in _OPTIONAL | _OPTIONAL_OF.get(algorithm, set()):
        return None
    if name in several:
        return _numbers(algorithm, name, several[name], value, base)
    if name in _FLAGS:
        return _flag(name, value)
    if name in structs.CHOICES:
        return _choice(name, value)
    if name == "seed":
        return _seed(name, value)
    number = real(name, value)
    return value if _is_tensor(value) else number
