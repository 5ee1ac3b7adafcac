"""Cases at the level of the Python package: optimizers step torch's tensors while a program does things to them between steps.

What `optimizer.state` and the parameters show before a step decides what they must show after it, and the oracle of plan.py's cases
judges that, for the kernels, for the loop and, where it has the algorithm, for torch.optim.  So a change that an optimizer overlooks
shows as numbers that were not stepped.  An error is right only after changes that may be refused, and must have written
nothing.
"""

import numpy as np
import torch

import changes
import numbers_of
import oracle
from ball import LERP, arithmetic_of
from came_optim import native
from came_optim.optimizers import BY_NAME
from came_optim.options import from_group
from formats import STORAGE
from oracle import Wrong

import came_optim

torch.set_num_threads(1)

TORCH = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
# What torch.optim's Adam has, too.
SHARED = {"beta1", "beta2", "eps", "weight_decay", "maximize"}
ERRORS = (ValueError, TypeError, RuntimeError, NotImplementedError)


class Refused(Exception):
    """No optimizer takes the case's options."""


def arguments(word, options, lr):
    """Arguments of a class from names of came_options, with the library's defaults."""
    o = native.options(word, **options)
    made = {name: getattr(o, name) for name in ("weight_decay", "max_grad_norm", "seed")}
    made.update({name: bool(getattr(o, name)) for name in ("cautious", "stochastic_rounding", "maximize")})
    made["momentum_dtype"] = options.get("momentum_dtype")
    made["lr"] = lr
    if word == "came":
        made.update(betas=(o.beta1, o.beta2, o.beta3), confidence_1d=bool(o.confidence_1d))
    if word in TORCH or word == "lamb":
        made.update(betas=(o.beta1, o.beta2), eps=o.eps, second_moment_dtype=options.get("second_moment_dtype"))
    if word in ("came", "adafactor"):
        made.update(eps=(o.eps1, o.eps2), clip_threshold=o.clip_threshold)
    if word in ("came", "lamb"):
        made["bias_correction"] = bool(o.bias_correction)
    if word in ("came", "adafactor", "sm3"):
        made["view"] = options.get("view", "auto")
    if word == "sm3":
        made.update(beta1=o.beta1, eps=o.eps)
    if word == "adafactor":
        flags = ("scale_parameter", "relative_step", "warmup_init", "lr_in_momentum")
        made.update({name: bool(getattr(o, name)) for name in flags}, beta1=o.beta1, beta2=o.beta2, decay_rate=o.beta2_decay)
        made["lr"] = None if o.relative_step else lr
    return made


def from_stored(array, dtype):
    """A tensor of stored numbers."""
    tensor = torch.from_numpy(np.ascontiguousarray(array).copy().view(np.int16) if dtype == "bfloat16" else array.copy())
    return tensor.view(torch.bfloat16).reshape(array.shape) if dtype == "bfloat16" else tensor


def stored(tensor):
    """The numbers of a tensor as plan.py stores them, and their type."""
    dtype = str(tensor.dtype).replace("torch.", "")
    dense = tensor.detach().clone().contiguous()  # numpy pins the storage that it is given
    array = dense.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else dense.numpy()
    return array.astype(STORAGE[dtype], copy=True).reshape(tuple(tensor.shape)), dtype


class Side:
    """One optimizer of a case with its parameters."""

    between = 0  # roundings of a parameter before the last one
    makes_state = True  # a step that finds no state, a rate of 0 and gradients of zeros makes state, and does nothing else

    def arithmetic(self, tensor):
        a = arithmetic_of(tensor, False)
        return LERP[a] if self.fused is False else a

    def __init__(self, case, fused):
        self.case, self.fused, self.word = case, fused, case["optimizer"]
        self.tensors = [dict(t) for t in case["tensors"] for _ in range(case.get("copies", 1))]
        self.params = [self.parameter(k) for k in range(len(self.tensors))]
        rate = case["steps"][0]["lr"]
        groups = []
        for g, options in enumerate(case["options"]):
            members = [p for p, t in zip(self.params, self.tensors) if t.get("group", 0) == g]
            groups.append({"params": members, **arguments(self.word, options, rate)})
        try:
            self.optimizer = BY_NAME[self.word](groups, fused=fused)
            self.layout(self.members(), self.options())  # whether eps goes with the types of parameters
        except ERRORS as error:
            raise Refused(str(error)) from None
        self.restless = []  # changes so far that a step may refuse

    def parameter(self, k):
        array = numbers_of.parameter(self.tensors[k], k, self.case["seed"])
        return torch.nn.Parameter(from_stored(array, self.tensors[k]["dtype"]))

    # ---- what a program sees ---------------------------------------------------------------------------

    def visible(self):
        """Bytes of all parameters and state."""
        seen = {("param", k): stored(p)[0].tobytes() for k, p in enumerate(self.params)}
        for k, p in enumerate(self.params):
            for name, value in dict(self.optimizer.state.get(p, {})).items():
                seen[name, k] = stored(value)[0].tobytes() if isinstance(value, torch.Tensor) else repr(value)
        return seen

    def members(self):
        """Parameters in the optimizer's order with their groups: the place is the key of their rounding."""
        return [(p, g) for g, group in enumerate(self.optimizer.param_groups) for p in group["params"]]

    def options(self):
        fields = BY_NAME[self.word]._all_fields()
        return [from_group(self.word, fields, group) for group in self.optimizer.param_groups]

    def layout(self, members, options):
        names = [str(p.dtype).replace("torch.", "") for p, _ in members]
        specs = [native.Spec(tuple(p.shape), name, None, g, "", k) for k, ((p, g), name) in enumerate(zip(members, names))]
        return native.Plan(options, specs, native.REFERENCE)

    def memory(self, members, plan):
        """Parameters and state by name, in the types that a step takes them in, and counters."""
        named = [{"param": stored(p)} for p, _ in members]
        for info in plan.states:
            value = self.optimizer.state.get(members[info.tensor][0], {}).get(info.name)
            dtype = getattr(torch, info.dtype)
            if value is None:
                value = torch.zeros(info.shape, dtype=dtype)
            named[info.tensor][info.name] = stored(value.to(dtype).reshape(info.shape))
        counts = [self.optimizer.state.get(p, {}).get("step", 0) for p, _ in members]
        return named, [int(c) for c in counts]

    # ---- a step ----------------------------------------------------------------------------------------

    def set_gradients(self, number, step):
        kinds = step.get("grads", {})
        for k, (p, t) in enumerate(zip(self.params, self.tensors)):
            kind = kinds.get(str(k))
            p.grad = None
            if kind == "none":
                continue
            dtype = str(p.dtype).replace("torch.", "")
            grad = from_stored(numbers_of.gradient({**t, "dtype": dtype}, k, step, number), dtype)
            if kind == "strided" and grad.ndim > 0:
                grad = torch.stack((grad, grad), -1)[..., 0]
            p.grad = grad

    def step(self, number, step, tally):
        self.set_gradients(number, step)
        for group in self.optimizer.param_groups:
            if group["lr"] is not None:
                group["lr"] = step["lr"]
        for change in step.get("changes", []):
            if changes.may_be_refused(change):
                self.restless.append(change)
            if self.apply(change):
                return False
        members = self.members()
        seen, grads = self.visible(), [None if p.grad is None else stored(p.grad)[0].tobytes() for p, _ in members]
        try:
            options = self.options()
            plan = self.layout(members, options)
            before, counts = self.memory(members, plan)
        except ERRORS:
            plan = None  # no layout fits: the step must find that, too
        idle = self.only_makes_state()
        try:
            self.optimizer.step()
        except ERRORS as error:
            return self.refused(error, seen)
        if plan is None:
            raise Wrong("a step was taken though its options and state do not go together")
        after, new_counts = self.memory(members, plan)
        if grads != [None if p.grad is None else stored(p.grad)[0].tobytes() for p, _ in members]:
            raise Wrong("a gradient was written")
        going = [k for k, (p, _) in enumerate(members) if p.grad is not None and not idle]
        self.judge(members, going, plan, options, before, after, counts, new_counts, tally)
        return True

    def only_makes_state(self):
        """Whether the step is there for the state that it makes: none yet, rate 0, gradients of zeros."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        grads = [p.grad for p, _ in self.members() if p.grad is not None]
        return self.makes_state and not any(self.optimizer.state.values()) and set(rates) == {0} and not any(bool(g.any()) for g in grads)

    def apply(self, change):
        """Whether the change was refused, with all as it was."""
        seen = self.visible()
        try:
            changes.apply(self, change)
        except ERRORS as error:
            self.refused(error, seen)
            return True
        return False

    def refused(self, error, seen):
        if not self.restless:
            raise Wrong(f"refused without a reason: {type(error).__name__}: {error}")
        now = self.visible()
        for key, saved in seen.items():
            if now.get(key) != saved:
                raise Wrong(f"{key[0]} of tensor {key[1]} was written by a call that failed: {type(error).__name__}: {error}")
        return False

    def judge(self, members, going, plan, options, before, after, counts, new_counts, tally):
        tensors = [{"shape": list(p.shape), "dtype": str(p.dtype).replace("torch.", "")} for p, _ in members]
        grads = {k: stored(members[k][0].grad) for k in going}
        balls = [oracle.gradient(grads[k], self.arithmetic(tensors[k])) for k in going]
        for k, (p, g) in enumerate(members):
            named = f"tensor {k} {tensors[k]['shape']} {tensors[k]['dtype']}"
            if new_counts[k] != counts[k] + (k in going):
                raise Wrong(f"{named}: counter went from {counts[k]} to {new_counts[k]}")
            if k not in going or p.numel() == 0:
                for name, (array, _) in before[k].items():
                    if array.tobytes() != after[k][name][0].tobytes():
                        raise Wrong(f"{named}: {name} was written by a step that passes it over")
                continue
            factor = oracle.gradient_factor(options[g], 1.0, balls)
            seen = plan.view(k)
            rate = self.optimizer.param_groups[g]["lr"] or 0.0
            a, old = self.arithmetic(tensors[k]), {**before[k], "grad": grads[k]}
            s = oracle.Subject(options[g], seen, old, after[k], a, rate, new_counts[k], k, factor, self.between)
            try:
                with np.errstate(all="ignore"):
                    oracle.STEPS[self.word](s)
            except Wrong as error:
                raise Wrong(f"{named}: {error}") from None
            finally:
                tally["checked"] += s.checked
                tally["free"] += s.free


class TorchSide(Side):
    """torch.optim in place of ours: it must satisfy the oracle, or the oracle is wrong.  It decays first, and rounds."""

    between = 1
    makes_state = False

    def __init__(self, case):
        super().__init__(case, False)
        groups = [{"params": group["params"]} for group in self.optimizer.param_groups]
        for made, options in zip(groups, case["options"]):
            given = arguments(self.word, options, case["steps"][0]["lr"])
            made.update({name: given[name] for name in ("lr", "betas", "eps", "weight_decay", "maximize")})
        ours = self.optimizer.param_groups
        self.optimizer = TORCH[self.word](groups, foreach=False)
        for group, own in zip(self.optimizer.param_groups, ours):
            for name, value in own.items():
                group.setdefault(name, value)


def sides(case):
    yield "kernels", Side(case, None)
    yield "loop", Side(case, False)
    plain = all(set(options) <= SHARED for options in case["options"])
    narrow = any(t["dtype"] in ("bfloat16", "float16") for t in case["tensors"])  # whose moments torch keeps in that type
    changed = any(step.get("changes") for step in case["steps"])
    if case["optimizer"] in TORCH and plain and not narrow and not changed:
        yield "torch", TorchSide(case)


def run(case, tally=None):
    """Runs a case on every side; raises Wrong, or Refused where no optimizer can be made."""
    tally = {"checked": 0, "free": 0} if tally is None else tally
    default = torch.get_default_dtype()
    try:
        for name, side in sides(case):
            for number, step in enumerate(case["steps"]):
                try:
                    if not side.step(number, step, tally):
                        break
                except Wrong as error:
                    raise Wrong(f"{name}: step {number}: {error}") from None
            torch.set_default_dtype(default)
    finally:
        torch.set_default_dtype(default)
