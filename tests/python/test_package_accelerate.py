"""accelerate and the Trainer of transformers shard a model with FSDP2 and swap its parameters after the optimizer is made: two processes
train, save and resume."""

import pytest
import torch
import torch.distributed as dist
from ranks import Pool
from sharded_models import apart, model, train, weights

import came_optim

accelerate = pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

STEPS = 3
TOLERANCE = 1e-10  # see test_package_sharding.py
OPTIMIZERS = {
    "came": (came_optim.CAME, {}),
    "adafactor": (came_optim.Adafactor, {"lr": None, "relative_step": True}),
    "adamw": (came_optim.AdamW, {"momentum_dtype": "bf16"}),
    "sm3": (came_optim.SM3, {}),
}
KINDS = ["SHARDED_STATE_DICT", "FULL_STATE_DICT"]


@pytest.fixture(scope="module")
def two():
    """A pool of its own: accelerate changes its processes."""
    pool = Pool(2, seconds=60)
    yield pool
    pool.close()


def take_the_cpu_for_a_device():
    """accelerate's state ignores a plugin for FSDP unless there is an accelerator; all that follows runs on the CPU, too."""
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state(reset_partial_state=False)
    if AcceleratorState.__init__.__name__ == "made":
        return
    make = AcceleratorState.__init__

    def made(self, *arguments, fsdp_plugin=None, **more):
        make(self, *arguments, fsdp_plugin=fsdp_plugin, **more)
        if fsdp_plugin is not None:
            self.fsdp_plugin = fsdp_plugin
            self.distributed_type = PartialState._shared_state["distributed_type"] = accelerate.DistributedType.FSDP

    AcceleratorState.__init__ = made


# ---- accelerate --------------------------------------------------------------------------------------


def prepared(kind, cls, options):
    take_the_cpu_for_a_device()
    plugin = accelerate.FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=50, state_dict_type=kind, cpu_ram_efficient_loading=False
    )
    accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)
    net = model()
    return (accelerator, *accelerator.prepare(net, cls(net.parameters(), **options)))


def accelerated(folder, kind, word):
    """The weights after training, and after a part of it was done again from a checkpoint."""
    cls, options = OPTIMIZERS[word]
    accelerator, net, optimizer = prepared(kind, cls, options)
    place = accelerator.process_index, accelerator.num_processes
    train(net, optimizer, STEPS, place)
    optimizer.zero_grad()
    accelerator.save_state(folder)
    train(net, optimizer, STEPS, place, first=STEPS)
    expected = weights(net)
    accelerator, net, optimizer = prepared(kind, cls, options)
    accelerator.load_state(folder)
    train(net, optimizer, STEPS, place, first=STEPS)
    assert type(net).__name__.startswith("FSDP")
    return expected, weights(net)


@pytest.mark.parametrize("word", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_accelerate_trains_saves_and_resumes(two, kind, word, tmp_path):
    cls, options = OPTIMIZERS[word]
    net = model()
    origin = weights(net)
    train(net, cls(net.parameters(), **options), 2 * STEPS)
    for straight, resumed in two(accelerated, str(tmp_path), kind, word):
        assert apart(straight, weights(net), origin) <= TOLERANCE
        assert all(torch.equal(straight[name], resumed[name]) for name in straight)


# ---- the Trainer -------------------------------------------------------------------------------------


def windows():
    draw = [torch.randint(64, (16,), generator=torch.Generator().manual_seed(k)) for k in range(64)]
    return [{"input_ids": window, "labels": window} for window in draw]


def trainer(folder, kind):
    take_the_cpu_for_a_device()
    transformers.set_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=24, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        max_steps=2 * STEPS,
        save_steps=STEPS,
        per_device_train_batch_size=4,
        learning_rate=3e-3,
        warmup_steps=2,  # the first step has a rate of zero
        weight_decay=0.01,
        use_cpu=True,
        fsdp=True,
        fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["GPT2Block"], "state_dict_type": kind},
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
    )
    chosen = came_optim.CAME, {"lr": arguments.learning_rate}
    return transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=windows(), optimizer_cls_and_kwargs=chosen
    )


def trained(folder, kind):
    first = trainer(folder, kind)
    first.train()
    second = trainer(folder, kind)
    second.train(resume_from_checkpoint=f"{folder}/checkpoint-{STEPS}")
    dist.barrier()
    counts = {float(slot["step"]) for slot in second.optimizer.optimizer.state.values()}
    return type(second.model_wrapped).__name__, counts, weights(first.model), weights(second.model)


@pytest.mark.parametrize("kind", KINDS)
def test_the_trainer_trains_saves_and_resumes(two, kind, tmp_path):
    for name, counts, straight, resumed in two(trained, str(tmp_path), kind):
        assert name.startswith("FSDP") and counts == {2.0 * STEPS}
        assert all(torch.equal(straight[name], resumed[name]) for name in straight)
