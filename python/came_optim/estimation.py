"""`came_optim.estimate`: what an optimizer will need, before anything is allocated.  Needs no torch."""

from inspect import signature
from math import prod
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import arguments, layout, native
from .library import is_built
from .options import from_group

_COLUMNS = ("parameters", "gradients", "state", "workspace", "peak")


class Row(NamedTuple):
    """Bytes of one optimizer; `peak` is all that it holds during a step: state, workspace, tables.

    Where libcame is not built, `workspace` is None and `peak` the state alone: the temporary tensors of the loop, a few of the size
    of the largest parameter, are not counted.
    """

    optimizer: str
    parameters: int
    gradients: int
    state: int
    workspace: Optional[int]
    peak: int


class Estimate(List[Row]):
    """Rows of bytes; as text, a table."""

    elements = 0

    def __str__(self) -> str:
        lines = [("optimizer", *_COLUMNS, "B/param")]
        for row in self:
            lines.append((row.optimizer, *map(_text, row[1:]), f"{row.peak / max(self.elements, 1):.2f}"))
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join(
            "  ".join(cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(zip(line, widths)))
            for line in lines
        )


def _text(size: Optional[float]) -> str:
    if size is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"


def _specs(model_or_shapes: Any, dtype: str) -> List[native.Spec]:
    parameters = getattr(model_or_shapes, "parameters", None)
    items: Iterable[Any] = model_or_shapes
    if callable(parameters):
        items = [param for param in parameters() if param.requires_grad]
    specs = []
    for k, item in enumerate(items):
        shape = tuple(getattr(item, "shape", item))
        name = str(getattr(item, "dtype", dtype)).replace("torch.", "")
        if name not in native.DTYPES or not all(isinstance(size, int) for size in shape):
            raise TypeError(f"model_or_shapes[{k}]: {item!r} given, expected a tensor of real numbers or a shape")
        specs.append(native.Spec(shape, name, id=k))
    return specs


def _algorithm(optimizer: Any) -> str:
    algorithm = getattr(optimizer, "algorithm", optimizer)
    if not isinstance(algorithm, str) or algorithm.lower() not in native.ALGORITHMS:
        raise ValueError(f"optimizer: {optimizer!r} given, expected one of {', '.join(native.ALGORITHMS)}, or a class of came_optim")
    return algorithm.lower()


def _options(optimizer: Any, options: Dict[str, Any]) -> native.Options:
    """Of a class or an optimizer, with their defaults and arguments; of a name, with libcame's."""
    if isinstance(optimizer, str):
        return layout.options(optimizer.lower(), **{name: v for name, v in options.items() if v is not None})
    known = getattr(optimizer, "defaults", None)
    if known is None:
        known = {name: p.default for name, p in signature(optimizer).parameters.items() if name != "params"}
    fields = optimizer._all_fields()
    unknown = sorted(set(options) - set(known) - set(fields))
    if unknown:
        raise TypeError(f"{unknown[0]}: given, but {_algorithm(optimizer)} has no such argument")
    return from_group(optimizer.algorithm, fields, {**known, **arguments.plain(optimizer.algorithm, fields, options, known)})


_SIZES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "uint8": 1}


def _bytes(options: native.Options, specs: List[native.Spec], backend: int) -> Tuple[int, int, int, Optional[int], int]:
    """The columns of a row."""
    if is_built():
        memory = native.estimate([options], specs, backend)
        workspace = memory.workspace_bytes + memory.reduction_bytes + memory.table_bytes
        return memory.parameter_bytes, memory.gradient_bytes, memory.state_bytes, workspace, memory.peak_bytes
    state = sum(_SIZES[state.dtype] * prod(state.shape) for state in layout.Layout([options], specs).states)
    parameters = sum(_SIZES[spec.dtype] * prod(spec.shape) for spec in specs)
    return parameters, parameters, state, None, state


def estimate(
    model_or_shapes: Any,
    optimizer: Union[None, Any, Sequence[Any]] = None,
    *,
    dtype: str = "float32",
    device: Optional[str] = None,
    **options: Any,
) -> Estimate:
    """Bytes of state, workspace, gradients and peak, without allocating any of them.

    Args:
        model_or_shapes: a module (one on the meta device will do), or tensors, or shapes.
        optimizer: a class of came_optim or one of its objects, with their defaults; or a name, such as "came", with libcame's
            defaults; or a list of these; None: all names.
        dtype: of parameters that are given as shapes.
        device: "cpu" or "cuda", whose workspaces differ; None: that of the model.
        options: arguments of the class (with a name: fields of came_options) that decide its size, such as momentum_dtype.

    >>> print(estimate([(1024, 4096), (4096,)], ["came", "adamw"], momentum_dtype="int8", device="cpu"))
    optimizer  parameters  gradients      state   workspace       peak  B/param
    came        16.02 MiB  16.02 MiB   4.20 MiB  144.38 KiB   4.34 MiB     1.08
    adamw       16.02 MiB  16.02 MiB  20.16 MiB        64 B  20.16 MiB     5.03
    """
    several = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    chosen = list(native.ALGORITHMS) if optimizer is None else several
    if not callable(getattr(model_or_shapes, "parameters", None)):  # some modules are iterable, too
        model_or_shapes = list(model_or_shapes)
    specs = _specs(model_or_shapes, dtype)
    backend = native.CUDA if (device or _device_of(model_or_shapes)).startswith("cuda") else native.AUTO
    table = Estimate()
    table.elements = sum(prod(spec.shape) for spec in specs)
    for one in chosen:
        table.append(Row(_algorithm(one), *_bytes(_options(one, options), specs, backend)))
    return table


def _device_of(model: Any) -> str:
    parameters = getattr(model, "parameters", None)
    first = next(iter(parameters()), None) if callable(parameters) else None
    return str(getattr(first, "device", "cpu"))
