"""CAME in the Trainer of Hugging Face: a tiny GPT-2, initialised at random, learns the bytes of this file.

    .venv/bin/python examples/python/huggingface_trainer.py

Trainer makes the optimizer from a class and its arguments, with the param groups it would make for AdamW: no decay of
biases and norms.  The schedule is that of its own arguments, too.
"""

import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import came_optim

LENGTH, STEPS = 64, 60

set_seed(0)
torch.set_num_threads(1)
text = torch.tensor(list(Path(__file__).read_bytes()))
windows = text.unfold(0, LENGTH, 4)
data = [{"input_ids": window, "labels": window} for window in windows]

config = GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        weight_decay=0.01,
        warmup_steps=5,
        lr_scheduler_type="cosine",
        logging_steps=20,
        save_steps=STEPS,  # the checkpoint holds the optimizer's state
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    # The rate is an argument of the optimizer; the decay comes with the groups.
    chosen = came_optim.CAME, {"lr": arguments.learning_rate}
    trainer = Trainer(model=model, args=arguments, train_dataset=data, optimizer_cls_and_kwargs=chosen)
    result = trainer.train()
    saved = torch.load(Path(folder) / f"checkpoint-{STEPS}" / "optimizer.pt", weights_only=True)

losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(f"{result.global_step} steps, mean loss of each 20:", *(f"{loss:.3f}" for loss in losses))
print(f"the checkpoint has the state of {len(saved['state'])} parameters")
