"""The packages that others use read what the lab writes, and the lab reads what they write."""

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PROBE = Path(os.environ["CAME_LAB"]) / "came_lab_probe_storage"

# The format's dtypes as torch has them; what torch lacks is written by hand below.
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e8m0fnu,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int16, torch.uint16, torch.float16, torch.bfloat16,
    torch.int32, torch.uint32, torch.float32, torch.complex64, torch.float64, torch.int64, torch.uint64,
]  # fmt: skip


def probe(*words):
    done = subprocess.run([PROBE, *map(str, words)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def random_tensor(shape, dtype, seed):
    """Any bits: numbers that are not finite must survive, too."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel() * dtype.itemsize
    high = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, high, (count,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def everything():
    """All dtypes, of one element without dimensions, of none, and of several."""
    tensors = {}
    for k, dtype in enumerate(DTYPES):
        for name, shape in (("scalar", ()), ("empty", (0, 3)), ("matrix", (3, 5))):
            tensors[f"{name}.{dtype}".replace("torch.", "")] = random_tensor(shape, dtype, k)
    return tensors


def test_the_package_reads_what_we_write_and_we_write_what_it_does(tmp_path):
    tensors = everything()
    # Names that need escapes, and that sort otherwise than they read.
    tensors['a "name"\\\n\té\u0001\U0001f600'] = torch.arange(3)
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt é"})
    assert probe("copy", tmp_path / "theirs", tmp_path / "ours") == (0, "", "")
    # Byte for byte: the order of tensors, the header's spelling and its padding.
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    loaded = load_file(tmp_path / "ours")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert raw(loaded[name]) == raw(tensor)
    with safetensors.safe_open(tmp_path / "ours", "pt") as file:
        assert file.metadata() == {"format": "pt é"}


def test_what_is_read_is_what_the_header_says(tmp_path):
    save_file({"w": torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16), "s": torch.tensor(7)}, tmp_path / "file")
    _, listed, _ = probe("list", tmp_path / "file")

    def crc(data):  # bit by bit, as it is defined
        value = 0xFFFFFFFF
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return f"{value ^ 0xFFFFFFFF:08x}"

    expected = [["s", "I64", "[]", crc(struct.pack("<q", 7))], ["w", "BF16", "[1,2]", crc(b"\x80\x3f\x00\x40")]]
    assert [line.split() for line in listed.splitlines()] == expected


@pytest.mark.parametrize("dtype, bits", [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)])
def test_dtypes_narrower_than_a_byte(tmp_path, dtype, bits):
    header = {"t": {"dtype": dtype, "shape": [4, 2], "data_offsets": [0, bits]}}
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(text)) + text + bytes(range(bits)))
    assert probe("copy", tmp_path / "file", tmp_path / "ours")[0] == 0
    ((name, entry),) = safetensors.deserialize((tmp_path / "ours").read_bytes())
    assert name == "t" and entry["dtype"] == dtype and entry["shape"] == [4, 2]
    assert bytes(entry["data"]) == bytes(range(bits))


def test_a_header_that_is_not_aligned_is_read(tmp_path):
    whole = save({"a": torch.arange(5), "b": torch.arange(3, dtype=torch.uint8)})
    length = struct.unpack("<Q", whole[:8])[0]
    header = whole[8 : 8 + length].rstrip() + b" " * 4
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(header)) + header + whole[8 + length :])
    assert len(header) % 8 != 0
    assert probe("copy", tmp_path / "file", tmp_path / "ours")[0] == 0
    assert (tmp_path / "ours").read_bytes() == whole


def headers():
    entry = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    yield "a hole", {"a": {**entry, "data_offsets": [1, 5]}}
    yield "an overlap", {"a": entry, "b": {**entry, "data_offsets": [1, 5]}}
    yield "another size", {"a": {**entry, "shape": [5]}}
    yield "a range past the end", {"a": {**entry, "shape": [6], "data_offsets": [0, 6]}}
    yield "bytes behind", {"a": entry}
    yield "an unknown dtype", {"a": {**entry, "dtype": "U7", "shape": [5], "data_offsets": [0, 5]}}
    yield "a negative size", {"a": {**entry, "shape": [-5], "data_offsets": [0, 5]}}
    yield "an overflow", {"a": {**entry, "shape": [2**32, 2**33], "data_offsets": [0, 5]}}
    yield "metadata that is no text", {"__metadata__": {"a": 1}, "a": {**entry, "shape": [5], "data_offsets": [0, 5]}}


@pytest.mark.parametrize("what, header", list(headers()), ids=lambda value: value if isinstance(value, str) else "")
def test_both_refuse(tmp_path, what, header):
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(text)) + text + bytes(5))
    with pytest.raises(safetensors.SafetensorError):
        load_file(tmp_path / "file")
    status, _, error = probe("list", tmp_path / "file")
    assert status == 1 and error.startswith(f"probe: {tmp_path / 'file'}: ") and error.count("\n") == 1


def read_events(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def scalars(events, tag):
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_reads_scalars_and_text(tmp_path):
    assert probe("events", tmp_path, 1, 300)[0] == 0
    events = read_events(tmp_path)
    assert sorted(events.Tags()["scalars"]) == ["loss/train", "loss/valid", "lr"]
    assert scalars(events, "loss/train") == [(step, step / 4) for step in range(1, 301)]
    assert scalars(events, "loss/valid") == [(300, 0.5)]
    assert scalars(events, "lr")[0][1] == pytest.approx(1e-4, rel=1e-7)
    (text,) = events.Tensors("config")
    assert text.tensor_proto.string_val == [b"*model* = gpt2"]
    assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_tensorboard_drops_what_a_resumed_run_writes_again(tmp_path):
    assert probe("events", tmp_path, 1, 10)[0] == 0
    assert probe("events", tmp_path, 6, 8, "restart")[0] == 0  # most likely within the same second
    assert len(list(tmp_path.iterdir())) == 2
    events = read_events(tmp_path)
    assert scalars(events, "loss/train") == [(step, step / 4) for step in range(1, 9)]
    rates = [value for _, value in scalars(events, "lr")]
    assert rates == pytest.approx([1e-4] * 5 + [2e-4] * 3, rel=1e-6)
    assert scalars(events, "loss/valid") == [(8, 0.5)]


def test_tensorboard_reads_a_file_that_a_kill_cut_short(tmp_path):
    assert probe("events", tmp_path, 1, 10)[0] == 0
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert len(scalars(read_events(tmp_path), "loss/train")) == 10
