"""What programs do to the memory of one tensor among hundreds, and optimizers to do it to."""

import torch
from package import parameters, raw, set_gradients
from torch import nn

import came_optim

COUNT, MIDDLE = 400, 57
SHAPES = [(4, 6) if k % 3 else (5,) for k in range(COUNT)]
SHAPES[MIDDLE] = (4, 6)
WAYS = ["dlpack", "python", "loop"]  # how torch tells kernels what tensors are; and none


def grown(optimizer_class=came_optim.AdamW, way="dlpack", count=COUNT, **options):
    """An optimizer of many parameters after three steps."""
    count = MIDDLE + 3 if way == "loop" else count  # which takes its time
    params = parameters(torch.float32, SHAPES[:count])
    optimizer = optimizer_class(params, lr=0.1, fused=False if way == "loop" else None, **options)
    for step in range(3):
        set_gradients(params, step)
        optimizer.step()
    return params, optimizer


def everything(params, optimizer):
    """Bytes of parameters and of all state that can still be read."""
    slots = [v for s in optimizer.state.values() for v in s.values() if v.device.type == "cpu" and readable(v)]
    return [raw(t) for t in [*params, *slots]]


def readable(tensor):
    return tensor.layout is torch.strided and tensor.untyped_storage().nbytes() >= tensor.nbytes


def set_data(slot, name, tensor):
    tensor.data = tensor.data.clone()


def assign(slot, name, tensor):
    slot[name] = tensor.clone()


def set_storage(slot, name, tensor):
    tensor.set_(tensor.clone())


def share(slot, name, tensor):
    tensor.share_memory_()


def enlarge(slot, name, tensor):
    tensor.untyped_storage().resize_(4 * tensor.untyped_storage().nbytes())


def shrink_and_grow(slot, name, tensor):
    """Through sizes for which the allocator hands out memory again."""
    kept, storage = tensor.clone(), tensor.untyped_storage()
    size = storage.nbytes()
    for other in (0, size, size // 2, size, 0, size):
        storage.resize_(other)
    tensor.copy_(kept)


def swap(slot, name, tensor):
    torch.utils.swap_tensors(tensor, tensor.clone())


def widen(slot, name, tensor):
    tensor.data = tensor.data.double()


def turn(slot, name, tensor):
    """The same numbers in another order of memory."""
    tensor.data = tensor.data.t().contiguous().t() if tensor.ndim == 2 else torch.stack((tensor, tensor), -1).data[..., 0]


def other_class(slot, name, tensor):
    slot[name] = nn.Parameter(tensor.clone(), requires_grad=False)


def assign_around(slot, name, tensor):
    dict.__setitem__(slot, name, tensor.clone())


def update_around(slot, name, tensor):
    dict.update(slot, {name: tensor.clone()})


def reuse(slot, name, tensor):
    """Another tensor at the very address, whose storage is then enlarged where it is."""
    storage, size, kept = tensor.untyped_storage(), tensor.untyped_storage().nbytes(), tensor.clone()
    storage.resize_(0)
    tensor.data = kept.clone()
    storage.resize_(size)


def lay_bare(slot, name, tensor):
    tensor.data = torch.nn.functional.pad(tensor.data.flatten(), (3, 5))[3:-5].view(tensor.shape)


def negate(slot, name, tensor):
    tensor.data = torch._neg_view(-tensor.data)


def swap_twice(slot, name, tensor):
    other = tensor.clone()
    torch.utils.swap_tensors(tensor, other)
    torch.utils.swap_tensors(tensor, other.clone())


def free(tensor):
    tensor.untyped_storage().resize_(0)


def halve(tensor):
    tensor.untyped_storage().resize_(tensor.nbytes // 2)


def cut(tensor):
    """By one byte, in memory that was freed and taken again."""
    storage, size = tensor.untyped_storage(), tensor.nbytes
    for other in (0, size, size // 2, size - 1):
        storage.resize_(other)


def resize(tensor):
    tensor.resize_(2, 2)


def transpose(tensor):
    tensor.data = tensor.data.t()


def narrow(tensor):
    tensor.data = tensor.data.as_strided((2, 6), (6, 1))


def reshape(tensor):
    tensor.data = tensor.data.reshape(6, 4)


def turn_in_place(tensor):
    tensor.t_()


def reinterpret(tensor):
    """The same memory, taken for another type."""
    tensor.data = tensor.data.view(torch.int32)


def to_meta(tensor):
    torch.utils.swap_tensors(tensor, tensor.to("meta"))


def to_codes(tensor):
    tensor.data = tensor.data.to(torch.int32)


def to_blocks(tensor):
    torch.utils.swap_tensors(tensor, tensor.detach().clone().to_mkldnn())
