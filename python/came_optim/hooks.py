"""What torch puts around every step: hooks and an entry for the profiler.

Its wrapper takes some 15 microseconds, nearly all of them for an entry that is written only while somebody profiles.  Here it
is entered only if anybody would notice.
"""

from functools import wraps
from typing import Any, Callable, Optional

import torch

try:
    from torch._C._profiler import _RecordFunctionFast
    from torch.autograd import _profiler_enabled
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    _wrap: Optional[Callable[[Any], Any]] = torch.optim.Optimizer.profile_hook_step
except (ImportError, AttributeError):  # a torch that has these elsewhere: it wraps steps itself
    _wrap = None


def wrap_step(cls: Any) -> None:
    """Wraps `cls.step`, unless it is wrapped or torch has to do it; torch leaves it alone after that."""
    if _wrap is None or getattr(cls.step, "hooked", None):
        return
    plain, watched = cls.step, _wrap(cls.step)

    @wraps(plain)
    def step(self: Any, *args: Any, **named: Any) -> Any:
        if (
            torch.compiler.is_compiling()
            or self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or _profiler_enabled()
        ):
            return watched(self, *args, **named)
        # Observers other than the profiler, such as execution traces, see this one.
        with _RecordFunctionFast(f"Optimizer.step#{type(self).__name__}.step"):
            return plain(self, *args, **named)

    step.hooked = True  # type: ignore[attr-defined]
    cls.step = step
