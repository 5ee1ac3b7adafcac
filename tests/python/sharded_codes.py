"""What the tests of codes under sharding run on each rank: matrices cut into rows, and vectors that are whole on every rank."""

import torch
import torch.distributed.checkpoint as dcp
from package import make
from sharded import R, S0, parameters, set_gradients, whole
from sharded_checkpoints import STEPS, states
from torch import nn
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh

# Several blocks of codes in a row and one that ends in the middle; ranks without rows; a convolution, experts.
TENSORS = [((70, 300), [S0]), ((2, 260), [S0]), ((16, 4, 3, 3), [S0]), ((3, 65, 64), [S0]), ((9,), [R]), ((1,), [R])]


class Weights(nn.Module):
    def __init__(self, world, dtype):
        super().__init__()
        self.mesh = init_device_mesh("cpu", (world,)) if world else None
        self.tensors = TENSORS if world else [(shape, None) for shape, _ in TENSORS]
        self.weights = nn.ParameterList(parameters(self.tensors, self.mesh, dtype))

    def train(self, optimizer, first=0):
        for step in range(first, first + STEPS):
            set_gradients(list(self.weights), self.tensors, self.mesh, step)
            optimizer.step()
        optimizer.zero_grad()

    def whole(self, optimizer):
        """Parameters and states as one process has them."""
        return [{"": whole(p.detach()).clone(), **{name: whole(value).clone() for name, value in optimizer.state[p].items()}} for p in self.weights]


def build(world, dtype, algorithm, momentum_dtype):
    net = Weights(world, dtype)
    return net, make(algorithm, net.parameters(), momentum_dtype=momentum_dtype)


def write_codes(path, *how):
    """What was written, and what comes of it without a stop."""
    net, optimizer = build(*how)
    net.train(optimizer)
    dcp.save(states(net, optimizer), checkpoint_id=path)
    written = net.whole(optimizer)
    net.train(optimizer, first=STEPS)
    return written, net.whole(optimizer)


def read_codes(path, *how):
    """What was read, and what comes of it."""
    net, optimizer = build(*how)
    with torch.no_grad():
        for param in net.parameters():
            param.zero_()
    state_dict = states(net, optimizer)
    dcp.load(state_dict, checkpoint_id=path)
    set_model_state_dict(net, state_dict["model"])
    set_optimizer_state_dict(net, optimizer, state_dict["optimizer"])
    read = net.whole(optimizer)
    net.train(optimizer, first=STEPS)
    return read, net.whole(optimizer)
