"""Gradients with torch's neg bit: what they mean is minus what lies in memory, which kernels cannot see.

torch sets the bit for the imaginary part of a conjugate.  Such a view skips every second number, so it is copied, and thereby
resolved, as any strided gradient is; one of a single element does not look strided and reaches the optimizer.
"""

from typing import Any, List, Sequence

from torch import Tensor


class Signs:
    """Looks for the bit in gradients that lie in rows: at first in all, then in those of one element and in turn some others,
    which have it only if somebody calls `torch._neg_view`."""

    LOOKS = 8  # a look takes 60 ns

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.found = False
        self._single = [k for k, param in enumerate(params) if param.numel() == 1]
        self._next, self._first = 0, True

    def find(self, grads: List[Any]) -> bool:
        """Whether a gradient has the bit, or one has had it before."""
        if self.found:
            return True
        if self._first:
            self.found, self._first = any(map(_is_negated, grads)), False
            return self.found
        self.found = any([_is_negated(grads[k]) for k in self._single])
        begin, end = self._next, self._next + self.LOOKS
        self._next = end if end < len(grads) else 0
        if not self.found and any(map(_is_negated, grads[begin:end])):
            raise RuntimeError(
                "a gradient has the neg bit, as of torch._neg_view, and those of the first step had not: steps since then may have "
                "read it with the wrong sign; call resolve_neg() on it"
            )
        return self.found


def _is_negated(grad: Any) -> bool:
    return grad is not None and grad.is_neg()
