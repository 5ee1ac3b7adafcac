"""What libcame decides before a step, in Python: defaults and ranges of options, how shapes become matrices, which state there is.

The loop goes by this alone, so it needs no library; kernels go by native.Plan.  tests/python/test_package_layout.py holds the two
to each other, messages included.  In C++: src/core/options.cpp, view.cpp, optimizers/.
"""

from math import inf, prod
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .native import ALGORITHMS, Spec, State, View
from .structs import CHOICES, FLAGS, REALS, Options

DEFAULTS: Dict[str, Dict[str, float]] = {
    "came": dict(lr=1e-3, beta1=0.9, beta2=0.999, beta3=0.9999, eps1=1e-30, eps2=1e-16, clip_threshold=1.0, bias_correction=1),
    "adafactor": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps1=1e-30, eps2=1e-3, clip_threshold=1.0),
    "adam": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8),
    "adamw": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1e-2),
    "lamb": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=1e-2, bias_correction=1),
    "sm3": dict(lr=0.1, beta1=0.9, eps=1e-30),
}

# ---- options: who has them, and what values they take ------------------------------------------------


class _Rule(NamedTuple):
    expected: str
    obeys: Callable[[float], bool]


_BETA = _Rule("a number in [0, 1)", lambda x: 0 <= x < 1)
_POSITIVE = _Rule("a finite number > 0", lambda x: 0 < x < inf)
_THRESHOLD = _Rule("a number > 0 (infinity: never clip)", lambda x: x > 0)
_NON_NEGATIVE = _Rule("a finite number >= 0", lambda x: 0 <= x < inf)
_NON_POSITIVE = _Rule("a finite number <= 0", lambda x: -inf < x <= 0)

_ADAM, _CLIPPING = ("adam", "adamw"), ("came", "adafactor")
_FACTORED, _ELEMENTWISE = (*_CLIPPING, "sm3"), (*_ADAM, "lamb")  # rows and columns of matrices, or a second moment per element


def _for(rule: _Rule, *algorithms: str) -> Dict[str, _Rule]:
    return dict.fromkeys(algorithms or ALGORITHMS, rule)


_REALS = {
    "lr": _for(_NON_NEGATIVE),
    "beta1": _for(_BETA),
    "beta2": _for(_BETA, *_CLIPPING, *_ELEMENTWISE),
    "beta3": _for(_BETA, "came"),
    "eps": {**_for(_NON_NEGATIVE, *_ADAM), **_for(_POSITIVE, "lamb", "sm3")},
    "eps1": _for(_POSITIVE, *_CLIPPING),
    "eps2": {"came": _POSITIVE, "adafactor": _NON_NEGATIVE},
    "clip_threshold": _for(_THRESHOLD, *_CLIPPING),
    "weight_decay": _for(_NON_NEGATIVE),
    "max_grad_norm": _for(_NON_NEGATIVE),
    "beta2_decay": _for(_NON_POSITIVE, "adafactor"),
}
_FLAGS: Dict[str, Sequence[str]] = {
    "bias_correction": ("came", "lamb"),
    "confidence_1d": ("came",),
    **dict.fromkeys(("cautious", "stochastic_rounding", "maximize"), ALGORITHMS),
    **dict.fromkeys(("relative_step", "warmup_init", "scale_parameter", "lr_in_momentum"), ("adafactor",)),
}
_BOOLEANS = {"true": 1, "false": 0, "1": 1, "0": 0}
_VALUES = {
    "view": {"auto": 0, "fold": 1, "last_two": 2},
    "momentum_dtype": {"default": 0, "f64": 1, "f32": 2, "bf16": 3, "int8": 6, "int4": 8},
    "second_moment_dtype": {"default": 0, "int8": 6},
}
_CHOOSERS = {"view": _FACTORED, "momentum_dtype": ALGORITHMS, "second_moment_dtype": _ELEMENTWISE}
_DTYPE_NAMES = ("default", "f64", "f32", "bf16", "f16", "i64", "int8", "u8", "int4")


def algorithm_of(options: Options) -> str:
    """The optimizer that options are of."""
    return ALGORITHMS[options.algorithm]


def options(algorithm: str, **values: Any) -> Options:
    """native.options without the library.

    >>> options("came", momentum_dtype="int8").momentum_dtype
    6
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm: '{algorithm}' given, expected one of {', '.join(ALGORITHMS)}")
    made = Options(algorithm=ALGORITHMS.index(algorithm), **DEFAULTS[algorithm])
    for name, value in values.items():
        known = name in REALS + FLAGS + CHOICES or name == "seed"
        setattr(made, name, value if known and not isinstance(value, str) else _parsed(name, str(value)))
    return made


def _parsed(name: str, text: str) -> Any:
    if name in FLAGS or name in CHOICES:
        values = _BOOLEANS if name in FLAGS else _VALUES[name]
        if text not in values:
            raise ValueError(f"option {name}: '{text}' given, expected one of {', '.join(values)}")
        return values[text]
    if name not in REALS and name != "seed":
        known = ", ".join((*REALS, *FLAGS, *CHOICES, "seed"))
        raise ValueError(f"option '{name}' is unknown, expected one of {known}")
    try:
        number = float(text) if name in REALS else int(text)
    except ValueError:
        number = -1 if name == "seed" else None
    if number is None or (name == "seed" and not 0 <= number < 2**64):
        expected = "whole number >= 0" if name == "seed" else "number"
        raise ValueError(f"option {name}: '{text}' given, expected a {expected}")
    return number


def validate(o: Options, what: str = "options") -> None:
    """native.validate without the library: raises ValueError unless every option has a value that its optimizer takes."""
    algorithm = algorithm_of(o)

    def refuse_if(is_set: bool, name: str) -> None:
        if is_set:
            raise ValueError(f"{what}: {name} is set, but {algorithm} has no such option")

    for name, rules in _REALS.items():
        value = getattr(o, name)
        refuse_if(algorithm not in rules and value != 0, name)
        if algorithm in rules and not rules[algorithm].obeys(value):
            raise ValueError(f"{what}: {name} is {value:g}, expected {rules[algorithm].expected}")
    for name, users in _FLAGS.items():
        value = getattr(o, name)
        refuse_if(algorithm not in users and value != 0, name)
        if value not in (0, 1):
            raise ValueError(f"{what}: {name} is {value}, expected 0 or 1")
    for name, users in _CHOOSERS.items():
        value = getattr(o, name)
        refuse_if(algorithm not in users and value != 0, name)
        if value not in _VALUES[name].values():
            given = str(value)
            if name != "view":
                given = f"{_DTYPE_NAMES[value] if 0 <= value < len(_DTYPE_NAMES) else 'unknown'} ({value})"
            raise ValueError(f"{what}: {name} is {given}, expected one of {', '.join(_VALUES[name])}")
    if o.warmup_init and not o.relative_step:
        raise ValueError(f"{what}: warmup_init is set, expected relative_step with it")
    if algorithm == "came" and o.beta1 == 0:
        raise ValueError(f"{what}: beta1 is 0, expected > 0: confidence is measured by how far updates are from the momentum")
    if o.cautious and o.beta1 == 0:
        raise ValueError(f"{what}: cautious is set with beta1 0, expected beta1 > 0: it compares momentum with gradient")


# ---- views and state ---------------------------------------------------------------------------------

_BLOCK = 128  # codes that share a scale
_FLOATS = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_LEAST = {"f64": 2.0**-1022, "f32": 2.0**-126}  # normal numbers


class _Tensor:
    """One parameter: its view and the list of its state."""

    def __init__(self, spec: Spec, o: Options, label: str) -> None:
        self.shape, self.o, self.algorithm, self.label = spec.shape, o, algorithm_of(o), label
        if spec.dtype not in _FLOATS:
            raise ValueError(f"{label}: dtype is {spec.dtype}, expected f64, f32, bf16 or f16")
        if prod(size for size in spec.shape if size) > (2**63 - 1) // 16:
            raise ValueError(f"{label}: shape {list(spec.shape)} has more elements than int64 can count in bytes")
        self.dtype = _FLOATS[spec.dtype]
        self.statistics = "float64" if self.dtype == "f64" else "float32"
        self.factored = self.algorithm in _FACTORED and len(spec.shape) > 1
        self.may_have_codes = len(spec.shape) > 1  # vectors are a thousandth of a model, and their shards do not fall on blocks
        self.batch, self.rows, self.cols, self.last_two = self._choose_view()
        self.states: List[Tuple[str, Tuple[int, ...], str, Tuple[int, ...]]] = []
        self._check_epsilons()
        self._add_states()

    def _choose_view(self) -> Tuple[int, int, int, bool]:
        shape = self.shape
        if len(shape) < 2:
            return 1, 1, prod(shape), False
        fold = 1, shape[0], prod(shape[1:]), False
        last_two = prod(shape[:-2]), shape[-2], shape[-1], True
        if not self.factored or self.o.view == _VALUES["view"]["fold"]:
            return fold
        smaller = last_two[0] * (last_two[1] + last_two[2]) < fold[1] + fold[2]
        return last_two if self.o.view == _VALUES["view"]["last_two"] or smaller else fold

    def _check_epsilons(self) -> None:
        """A statistic of nothing but zeros must not itself be rounded to zero: it is divided by."""
        least = _LEAST["f64" if self.dtype == "f64" else "f32"]
        pairs = [("eps1", self.o.eps1, self.o.beta2), ("eps2", self.o.eps2, self.o.beta3)]
        for name, eps, beta in pairs[: 2 if self.algorithm == "came" else 1]:
            if 0 < eps and eps * (1 - beta) < least:
                raise ValueError(
                    f"{self.label}: {name} is {eps:g}, expected at least {least / (1 - beta):g} for {self.dtype} parameters: "
                    "statistics would round to 0"
                )

    def _add_states(self) -> None:
        o, algorithm = self.o, self.algorithm
        if o.beta1 > 0 or algorithm not in ("adafactor", "sm3"):
            self._add_momentum()
        if algorithm in _ELEMENTWISE:
            codes = o.second_moment_dtype and self.may_have_codes
            self._add("exp_avg_sq", self.shape, "uint8" if codes else self.statistics)
            if codes:
                self._add("exp_avg_sq_scale", self._per_row(_BLOCK), "float32", self._row_dims())
            return
        prefix = "accumulator" if algorithm == "sm3" else "exp_avg_sq"
        if self.factored:
            for name in (prefix, "exp_avg_res")[: 2 if algorithm == "came" else 1]:
                n = len(self.shape)
                before = range(n - 2)
                rows, cols = ((*before, n - 2, -1), (*before, -1, n - 2)) if self.last_two else ((0, *[-1] * (n - 1)), (-1, *[0] * (n - 1)))
                self._add(f"{name}_row", self.shape[:-1] if self.last_two else (self.rows,), self.statistics, rows)
                self._add(f"{name}_col", (*self.shape[:-2], self.cols) if self.last_two else (self.cols,), self.statistics, cols)
            return
        self._add(prefix, self.shape, self.statistics)
        if o.confidence_1d:
            self._add("exp_avg_res", self.shape, self.statistics)

    def _add_momentum(self) -> None:
        kind = _DTYPE_NAMES[self.o.momentum_dtype]
        if kind == "f64" and self.dtype != "f64":
            raise ValueError(f"{self.label}: momentum_dtype is f64 for a {self.dtype} parameter, expected another type")
        if kind in ("int8", "int4") and self.may_have_codes:
            self._add("exp_avg", *((self.shape, "int8") if kind == "int8" else (self._per_row(2), "uint8", self._row_dims())))
            self._add("exp_avg_scale", self._per_row(_BLOCK), "float32", self._row_dims())
            return
        stored = {"f64": "float64", "f32": "float32", "bf16": "bfloat16"}
        self._add("exp_avg", self.shape, stored.get(kind, self.statistics))

    def _per_row(self, columns: int) -> Tuple[int, ...]:
        """The shape of one element for so many columns of each row."""
        pieces = -(-self.cols // columns)
        return (*self.shape[:-1], pieces) if self.last_two else (self.rows, pieces)

    def _row_dims(self) -> Tuple[int, ...]:
        """Which dimensions of such a shape are which of the parameter."""
        return tuple(d if self.last_two else min(d, 1) for d in range(len(self.shape)))

    def _add(self, name: str, shape: Sequence[int], dtype: str, dims: Optional[Sequence[int]] = None) -> None:
        """`dims`: those of native.State; None: the parameter's own."""
        self.states.append((name, tuple(shape), dtype, tuple(range(len(self.shape)) if dims is None else dims)))


class Layout:
    """State and views of a list of parameters, as native.Plan has them.

    >>> layout = Layout([options("sm3")], [Spec((2, 3), "float32")])
    >>> [(state.name, state.shape) for state in layout.states], layout.view(0).rows
    ([('exp_avg', (2, 3)), ('accumulator_row', (2,)), ('accumulator_col', (3,))], 2)
    """

    def __init__(self, groups: Sequence[Options], specs: Sequence[Spec]) -> None:
        self._specs = list(specs)
        for k, group in enumerate(groups):
            validate(group, f"group {k}")
        self._tensors = [_Tensor(spec, groups[spec.group], f"tensor {k} '{spec.name}'") for k, spec in enumerate(specs)]
        self.states = [
            State(k, *state, state[1], (0,) * len(state[1])) for k, tensor in enumerate(self._tensors) for state in tensor.states
        ]  # whole: no rank holds a part

    def takes(self, groups: Sequence[Options]) -> bool:
        """Whether state and views stay as they are with these options."""
        try:
            other = Layout(groups, self._specs)
        except ValueError:
            return False
        views = [[layout.view(k) for k in range(len(self._specs))] for layout in (self, other)]
        return other.states == self.states and views[0] == views[1]

    def batch_dims(self, tensor: int) -> int:
        """How many dimensions of a parameter count its matrices."""
        t = self._tensors[tensor]
        return len(t.shape) - 2 if t.factored and t.last_two else 0

    def view(self, tensor: int) -> View:
        """How a parameter is seen."""
        t = self._tensors[tensor]
        return View(t.factored, t.batch, t.rows, t.cols)
