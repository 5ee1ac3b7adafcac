"""What the tests of codes under sharding run on each rank: matrices cut into rows, and vectors that are whole on every rank."""

import torch
import torch.distributed.checkpoint as dcp
from package import make, raw
from sharded import R, S0, parameters, set_gradients, whole
from sharded_checkpoints import STEPS, states
from torch import nn
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh

# Several blocks of codes in a row and one that ends in the middle; ranks without rows; a convolution, experts.
TENSORS = [((70, 300), [S0]), ((2, 260), [S0]), ((16, 4, 3, 3), [S0]), ((3, 65, 64), [S0]), ((9,), [R]), ((1,), [R])]


class Weights(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.tensors = TENSORS if mesh else [(shape, None) for shape, _ in TENSORS]
        self.mesh, self.weights = mesh, nn.ParameterList(parameters(self.tensors, mesh, torch.float32))

    def train(self, optimizer, steps, first=0):
        for step in range(first, first + steps):
            set_gradients(list(self.weights), self.tensors, self.mesh, step)
            optimizer.step()
        optimizer.zero_grad()

    def bits(self, optimizer):
        """Of whole parameters and states."""
        return [{"": raw(whole(p)), **{name: raw(whole(value)) for name, value in optimizer.state[p].items()}} for p in self.weights]


def build(world, algorithm, momentum_dtype):
    net = Weights(init_device_mesh("cpu", (world,)) if world else None)
    return net, make(algorithm, net.parameters(), momentum_dtype=momentum_dtype)


def write_codes(path, world, algorithm, momentum_dtype):
    net, optimizer = build(world, algorithm, momentum_dtype)
    net.train(optimizer, STEPS)
    dcp.save(states(net, optimizer), checkpoint_id=path)
    return net.bits(optimizer)


def read_codes(path, world, algorithm, momentum_dtype):
    """The bits that were read, and those after more steps."""
    net, optimizer = build(world, algorithm, momentum_dtype)
    with torch.no_grad():
        for param in net.parameters():
            param.zero_()
    read = states(net, optimizer)
    dcp.load(read, checkpoint_id=path)
    set_model_state_dict(net, read["model"])
    set_optimizer_state_dict(net, optimizer, read["optimizer"])
    found = net.bits(optimizer)
    net.train(optimizer, STEPS, first=STEPS)
    return found, net.bits(optimizer)


def straight_codes(algorithm, momentum_dtype):
    net, optimizer = build(None, algorithm, momentum_dtype)
    net.train(optimizer, 2 * STEPS)
    return net.bits(optimizer)
