"""What the tests of sharded parameters run on each rank: tensors placed in every way, stepped beside one process that holds them whole."""

import torch
from package import make
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

R, S0, S1, S2 = Replicate(), Shard(0), Shard(1), Shard(2)
STEPS = 25

# Sets of options, each for all optimizers that have them.
OPTIONS = {
    "came": [{}, {"bias_correction": False, "confidence_1d": True}, {"cautious": True, "weight_decay": 0.1}, {"max_grad_norm": 0.5}, {"view": "last_two"}],
    "adafactor": [{}, {"lr": None, "relative_step": True, "scale_parameter": True, "lr_in_momentum": True}, {"beta1": None, "max_grad_norm": 0.5}],
    "adam": [{"weight_decay": 0.1}],
    "adamw": [{}, {"cautious": True, "max_grad_norm": 0.5}],
    "lamb": [{}, {"bias_correction": False, "max_grad_norm": 0.5}],
    "sm3": [{}, {"cautious": True, "max_grad_norm": 0.5}],
}
CASES = [(algorithm, k) for algorithm, sets in OPTIONS.items() for k in range(len(sets))]


def start(shape, k):
    return torch.randn(shape, generator=torch.Generator().manual_seed(k), dtype=torch.float64)


def gradient(shape, k, step):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + k + 500), dtype=torch.float64)


def place(tensor, mesh, placements):
    """A copy of a whole tensor, split over a mesh; without one, as it is."""
    return tensor.clone() if mesh is None else distribute_tensor(tensor.clone(), mesh, placements, src_data_rank=None)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def parameters(tensors, mesh, dtype=torch.float64):
    """Parameters of (shape, placements) pairs; placements None: a plain tensor."""
    made = []
    for k, (shape, placements) in enumerate(tensors):
        made.append(nn.Parameter(place(start(shape, k).to(dtype), mesh if placements is not None else None, placements)))
    return made


def set_gradients(params, tensors, mesh, step, without=()):
    for k, (param, (shape, placements)) in enumerate(zip(params, tensors)):
        grad = gradient(shape, k, step).to(param.dtype)
        param.grad = None if k in without else place(grad, mesh if placements is not None else None, placements)


def displacement(params, plain):
    """How far sharded parameters are from whole ones, by how far these have moved."""
    worst = 0.0
    for k, (param, other) in enumerate(zip(params, plain)):
        origin = start(other.shape, k).to(other.dtype)
        moved = (other.detach() - origin).abs().max().item() if other.numel() else 0.0
        apart = (whole(param.detach()) - other.detach()).abs().max().item() if other.numel() else 0.0
        worst = max(worst, apart / moved if moved else apart)
    return worst


def compare(mesh_shape, tensors, algorithm, options, steps=STEPS, without=()):
    """Steps the tensors on a mesh and whole; returns how far apart they are at the end."""
    mesh = init_device_mesh("cpu", mesh_shape)
    params, plain = parameters(tensors, mesh), parameters([(shape, None) for shape, _ in tensors], None)
    ours, theirs = make(algorithm, params, **options), make(algorithm, plain, **options)
    for step in range(steps):
        set_gradients(params, tensors, mesh, step, without)
        set_gradients(plain, [(shape, None) for shape, _ in tensors], None, step, without)
        ours.step()
        theirs.step()
    return displacement(params, plain)


def version_counters():
    """By how many a step raises the counter of a DTensor."""
    params = parameters([((13, 11), [S0])], init_device_mesh("cpu", (2,)))
    set_gradients(params, [((13, 11), [S0])], params[0].device_mesh, 0)
    before = params[0]._version
    make("came", params).step()
    return params[0]._version - before
