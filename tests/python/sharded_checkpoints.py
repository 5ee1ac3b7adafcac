"""What the tests of sharded checkpoints run on each rank: a model is trained, written, read in another sharding, and trained on.

A layout is (kind of sharding, shape of the mesh), or None for one process that holds everything.
"""

import warnings

import torch
import torch.distributed.checkpoint as dcp
from package import make
from sharded_models import model, on_mesh, train, weights
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

STEPS = 4  # before and after a checkpoint

# Both forms of Adafactor, one with rates of its own.
CASES = {
    "came": ("came", {"confidence_1d": True, "max_grad_norm": 0.5}),
    "adafactor": ("adafactor", {"beta1": 0.9}),
    "adafactor-relative": ("adafactor", {"lr": None, "relative_step": True, "scale_parameter": True, "beta1": 0.9, "lr_in_momentum": True}),
    "adam": ("adam", {"weight_decay": 0.1}),
    "adamw": ("adamw", {"cautious": True}),
    "lamb": ("lamb", {}),
    "sm3": ("sm3", {}),
}


def build(layout, case, momentum_dtype=None):
    """A model, its optimizer and this rank's place among those that have other data."""
    algorithm, options = CASES[case]
    net, place = (model(), (0, 1)) if layout is None else on_mesh(model(), *layout)
    return net, make(algorithm, net.parameters(), momentum_dtype=momentum_dtype, **options), place


def states(net, optimizer, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        return {"model": get_model_state_dict(net), "optimizer": get_optimizer_state_dict(net, optimizer, options=StateDictOptions(**options))}


def write(path, layout, case, momentum_dtype=None, flat=False, early=True):
    """Trains and writes.  `early`: state is made first, so that the layer without gradients has some in one process, too."""
    net, optimizer, place = build(layout, case, momentum_dtype)
    if early:
        states(net, optimizer)
    train(net, optimizer, STEPS, place)
    dcp.save(states(net, optimizer, flatten_optimizer_state_dict=flat), checkpoint_id=path)


def go_on(path, layout, case, momentum_dtype=None, flat=False, complete=True):
    """Reads into a model of zeros and trains on; the weights at the end.  `complete`: the checkpoint has all state."""
    net, optimizer, place = build(layout, case, momentum_dtype)
    with torch.no_grad():
        for param in net.parameters():
            param.zero_()
    options = {"flatten_optimizer_state_dict": flat}
    read = states(net, optimizer, **options)
    dcp.load(read, checkpoint_id=path, planner=dcp.DefaultLoadPlanner(allow_partial_load=not complete))
    set_model_state_dict(net, read["model"])
    set_optimizer_state_dict(net, optimizer, read["optimizer"], options=StateDictOptions(**options))
    train(net, optimizer, STEPS, place, first=STEPS)
    return weights(net)


def straight(case, momentum_dtype=None, steps=2 * STEPS):
    """(the weights of one process after all steps, and those at the beginning)."""
    net, optimizer, _ = build(None, case, momentum_dtype)
    origin = weights(net)
    train(net, optimizer, steps)
    return weights(net), origin
