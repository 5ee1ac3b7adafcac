"""The lab's models against those of transformers: the same files, logits, loss and gradients.

The probe builds a model, writes config.json and its parameters, and computes on a batch that is
made here; transformers loads the files with from_pretrained and computes on the same batch.
"""
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

# Both compute in f32, with a roundoff of 6e-8, in other orders.  A sum of 512 products is off by some
# sqrt(512) * 6e-8 = 1.4e-6 of its size, and a result lies behind at most 4 layers of 6 products, whose
# errors add up to at most 24 * 1.4e-6 = 3.3e-5.  Logits are of size 1; gradients are held to it
# relative to their norm, and three times that covers backward as well.
TOLERANCE = 1e-4
VOCABULARY, LENGTH, DECODED, SEQUENCES = 1003, 160, 150, 3

CASES = {
    "bert": dict(name="bert-tiny"),
    "bert_next": dict(name="bert-tiny", next_sentence=True),
    "gpt2": dict(name="gpt2-tiny"),
    "t5": dict(name="t5-tiny"),
}
CLASSES = {
    "bert": "BertForMaskedLM",
    "bert_next": "BertForPreTraining",
    "gpt2": "GPT2LMHeadModel",
    "t5": "T5ForConditionalGeneration",
}


def make_batch(case):
    """Tensors as in lab::Batch.  Padding is among the tokens: BERT must not learn from it."""
    torch.manual_seed(7)
    batch = {"input": torch.randint(VOCABULARY, (SEQUENCES, LENGTH))}
    batch["input"][:, 3] = 0
    places = SEQUENCES * LENGTH
    if case == "t5":
        batch["decoder_input"] = torch.randint(VOCABULARY, (SEQUENCES, DECODED))
        places = SEQUENCES * DECODED
    if case.startswith("bert"):
        batch["segments"] = torch.randint(2, (SEQUENCES, LENGTH))
        batch["positions"] = torch.nonzero(torch.rand(places) < 0.15).flatten()
        batch["next"] = torch.randint(2, (SEQUENCES,))
    batch["targets"] = torch.randint(VOCABULARY, (len(batch.get("positions", range(places))),))
    return batch


class Run:
    """What the probe computed, and transformers' model of the files it wrote."""

    def __init__(self, case, folder):
        self.batch = make_batch(case)
        request = dict(CASES[case], vocabulary=VOCABULARY, seed=3)
        (folder / "request.json").write_text(json.dumps(request))
        torch.save(self.batch, folder / "batch.pt")
        subprocess.run([Path(os.environ["CAME_LAB"]) / "came_lab_probe_models", folder], check=True)
        # libtorch's dict of tensors is tagged with its type, which takes more than weights alone.
        self.result = dict(torch.load(folder / "result.pt", weights_only=False))
        safetensors.save_file(self.named("parameter"), folder / "model.safetensors", {"format": "pt"})
        kind = getattr(transformers, CLASSES[case])
        self.model, self.report = kind.from_pretrained(folder, output_loading_info=True)
        self.model.eval()
        self.config = json.loads((folder / "config.json").read_text())
        self.folder = folder

    def named(self, kind):
        prefix = kind + "."
        return {k[len(prefix):]: v for k, v in self.result.items() if k.startswith(prefix)}

    def outputs(self):
        """Logits of transformers' model, and those of the next sentence where it has them."""
        names = {"input": "input_ids", "segments": "token_type_ids", "decoder_input": "decoder_input_ids"}
        outputs = self.model(**{names[k]: v for k, v in self.batch.items() if k in names})
        logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
        return logits, outputs.get("seq_relationship_logits")


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    return Run(request.param, tmp_path_factory.mktemp(request.param))


def distance(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


def test_transformers_loads_the_files_and_misses_nothing(run):
    assert run.config["architectures"] == [type(run.model).__name__]
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not run.report[kind], kind


def test_names_and_shapes_are_those_that_transformers_saves(run, tmp_path):
    run.model.save_pretrained(tmp_path)
    theirs = safetensors.load_file(tmp_path / "model.safetensors")
    ours = run.named("parameter")
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}
    for name, value in theirs.items():
        assert torch.equal(value, ours[name]), name


def test_logits_agree(run):
    logits, _ = run.outputs()
    logits = logits.detach()
    assert 0.3 < float(logits.std()) < 30
    error = float((run.result["logits"] - logits).abs().max()) / max(1, float(logits.std()))
    assert error < TOLERANCE


def test_loss_and_every_gradient_agree(run):
    logits, following = run.outputs()
    rows = logits.flatten(0, 1)
    if "positions" in run.batch:
        rows = rows[run.batch["positions"]]
    loss = F.cross_entropy(rows, run.batch["targets"], reduction="sum")
    assert distance(run.result["loss"], loss) < TOLERANCE
    if following is not None:
        next_loss = F.cross_entropy(following, run.batch["next"], reduction="sum")
        assert distance(run.result["next"], next_loss) < TOLERANCE
        loss = loss + next_loss
    run.model.zero_grad()
    loss.backward()
    theirs = {name: p.grad for name, p in run.model.named_parameters()}
    ours = run.named("gradient")
    assert ours.keys() == theirs.keys()
    errors = {}
    for name, gradient in theirs.items():
        if name.endswith("attention.self.key.bias"):
            # Adds the same to all scores of a query: its gradient is 0 but for rounding, of the
            # size of what is summed up, which the query's bias shows.
            scale = theirs[name.replace("key", "query")].norm()
            errors[name] = float((ours[name] - gradient).norm() / scale)
        else:
            errors[name] = distance(ours[name], gradient)
    worst = max(errors, key=errors.get)
    assert errors[worst] < TOLERANCE, worst
    print(f"worst gradient: {worst} {errors[worst]:.1e}")


def test_parameters_are_drawn_as_transformers_draws_them(run):
    """The deviation of n draws is off by 1 / sqrt(2 n) of itself: at most 6 of those, on both sides."""
    torch.manual_seed(1)
    theirs = dict(type(run.model)(run.model.config).named_parameters())
    for name, ours in run.named("initial").items():
        expected = theirs[name].detach()
        if expected.std() == 0 or ours.numel() < 2:
            assert torch.equal(ours, expected), name
            continue
        bound = 6 * 2 ** 0.5 / (2 * ours.numel()) ** 0.5
        assert abs(float(ours.std() / expected.std()) - 1) < bound, name
        assert abs(float(ours.mean())) < 6 * float(expected.std()) / ours.numel() ** 0.5, name


def test_the_padding_of_bert_begins_as_zero(run):
    if run.config["model_type"] != "bert":
        return
    table = run.named("initial")["bert.embeddings.word_embeddings.weight"]
    assert not table[0].any() and table[1].any()
