"""What the tests of the Python package share: optimizers with their options, shapes, gradients, small models."""

import torch
from torch import nn

from came_optim.optimizers import BY_NAME

# On a machine that other tests keep busy, a second one makes every tiny step wait for a time slice.
torch.set_num_threads(1)

# Each optimizer with a set of arguments that gives it a momentum.
OPTIMIZERS = {name: (cls, {"adafactor": {"beta1": 0.9}, "sm3": {"lr": 1e-2}}.get(name, {"lr": 1e-3})) for name, cls in BY_NAME.items()}
SHAPES = [(7, 13), (1, 37), (5, 1), (31,), (1,), (), (8, 3, 3, 3), (3, 300), (2, 65, 66), (0,), (0, 5)]
MOMENTA = [None, "bf16", "int8", "int4"]
# Spacing of numbers around 1, relative.
EPSILON = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}

# How far kernels and loop may be apart, in units of the last place of the displacement: they add up in other orders, which is a few
# units for sums of numbers of one sign and some ten for the direction of a step.
UNITS = 64


def make(algorithm, params, **options):
    cls, arguments = OPTIMIZERS[algorithm]
    return cls(params, **{**arguments, **options})


def parameters(dtype, shapes=SHAPES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes]


def set_gradients(params, step, seed=1):
    generator = torch.Generator().manual_seed(1000 * seed + step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def run(optimizer, params, steps, first=0):
    for step in range(first, first + steps):
        set_gradients(params, step)
        optimizer.step()


def assert_as_the_loop(p, q, origin, steps):
    """Kernels and loop end at p and q: apart by the order of sums, and by one rounding of the parameter at each step."""
    if p.numel():
        moved, largest = (q - origin).abs().max(), max(q.abs().max(), origin.abs().max())
        assert (p - q).abs().max() <= EPSILON[p.dtype] * (UNITS * moved + steps * largest), tuple(p.shape)


def assert_as_torchs_adam(p, q, steps):
    """A step of Adam rounds some thirteen times: three for each moment, two corrections, a root, a sum, a quotient, a product, and
    the decay and the move of the parameter.  None is by more than half a unit of the parameter's largest element, as updates are smaller."""
    assert (p - q).abs().max() <= 13 * steps * EPSILON[p.dtype] / 2 * q.abs().max()


def same(a, b):
    """Bit for bit, signs of zeros included."""
    return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)


def raw(tensor):
    dense = tensor.detach().contiguous().reshape(-1)
    return dense.view(torch.uint8).numpy().tobytes()


def same_states(a, b):
    """Whether two state dicts hold the same bits."""
    assert a["state"].keys() == b["state"].keys()
    for key, slot in a["state"].items():
        assert slot.keys() == b["state"][key].keys()
        for name, value in slot.items():
            other = b["state"][key][name]
            assert same(value, other), (key, name)
    return True


class Block(nn.Module):
    """A small transformer that predicts the next of 32 words."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, 32)

    def forward(self, words):
        return self.out(self.layer(self.embed(words)))

    def loss(self, step):
        words = torch.randint(32, (4, 9), generator=torch.Generator().manual_seed(step))
        return nn.functional.cross_entropy(self(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, groups=2), nn.ReLU(), nn.Conv2d(16, 8, 1))
        self.out = nn.Linear(8, 4)

    def loss(self, step):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 3, 8, 8, generator=generator)
        y = torch.randint(4, (8,), generator=generator)
        return nn.functional.cross_entropy(self.out(self.body(x.to(self.out.weight.dtype)).mean((2, 3))), y)


def seeded(model):
    torch.manual_seed(0)
    return model()
