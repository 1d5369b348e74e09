"""The position of data: a training that is killed at random sees each batch once, in order."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import curfew.data

TRAINING = """
import json, os, random, sys, time
import curfew.data

folder, record, epochs = sys.argv[1], sys.argv[2], 3

def shuffled(epoch):
    order = list(range(50))
    random.Random(epoch).shuffle(order)
    return order

batches = curfew.data.Batches(shuffled, epochs)
latest, seen = os.path.join(folder, "latest"), []
if os.path.exists(latest):
    saved = open(latest).read()
    assert curfew.data.load(batches, saved)
    seen = json.load(open(os.path.join(saved, "model.json")))
for n, batch in enumerate(batches):
    seen.append(batch)
    if n % 7 == 6:
        saved = os.path.join(folder, f"{len(seen)}-{os.getpid()}")
        curfew.data.save(batches, saved)
        with open(os.path.join(saved, "model.json"), "w") as out:
            json.dump(seen, out)
        with open(latest + ".tmp", "w") as out:
            out.write(saved)
        os.replace(latest + ".tmp", latest)  # the declaration of the save
    time.sleep(0.01)
json.dump(seen, open(record, "w"))
"""


def shuffled(epoch):
    order = list(range(50))
    random.Random(epoch).shuffle(order)
    return order


def test_position_resumes_at_every_batch(tmp_path):
    whole = list(curfew.data.Batches(shuffled, 3))
    for stop in range(len(whole)):
        first = curfew.data.Batches(shuffled, 3)
        seen = list(itertools.islice(first, stop))
        assert seen == whole[:stop]
        curfew.data.save(first, tmp_path)
        again = curfew.data.Batches(shuffled, 3)
        assert curfew.data.load(again, tmp_path)
        assert seen + list(again) == whole


def test_make_may_skip_by_itself(tmp_path):
    reads = []

    def make(epoch, start):
        reads.append((epoch, start))
        return shuffled(epoch)[start:]

    loader = curfew.data.Batches(make, 2)
    loader.load_state_dict({"epoch": 1, "index": 48})
    assert list(loader) == shuffled(1)[48:]
    assert reads == [(1, 48)]


def test_loaders_by_either_protocol(tmp_path):
    class Grain:
        state = b"7"

        def get_state(self):
            return self.state

        def set_state(self, state):
            self.state = state

    there, here = Grain(), Grain()
    there.state = b"42"
    assert not curfew.data.load(here, tmp_path)
    curfew.data.save(there, tmp_path)
    assert curfew.data.load(here, tmp_path) and here.state == b"42"
    with pytest.raises(TypeError):
        curfew.data.save(object(), tmp_path)
    with pytest.raises(TypeError):
        curfew.data.load(object(), tmp_path)


def test_ranks_have_positions_of_their_own(tmp_path, monkeypatch):
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        loader = curfew.data.Batches(shuffled)
        loader.load_state_dict({"epoch": 0, "index": 10 + int(rank)})
        curfew.data.save(loader, tmp_path)
    monkeypatch.setenv("RANK", "0")
    loader = curfew.data.Batches(shuffled)
    assert curfew.data.load(loader, tmp_path) and loader.index == 10
    assert sorted(os.listdir(tmp_path)) == ["data-0.pkl", "data-1.pkl"]


def test_an_epoch_without_batches_is_an_error():
    with pytest.raises(ValueError, match="epoch 0"):
        list(curfew.data.Batches(lambda epoch: [], 1))


def test_torch_loader_goes_on(tmp_path):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    first = stateful.StatefulDataLoader(list(range(20)), batch_size=2)
    seen = [next(batches) for batches in [iter(first)] for _ in range(4)]
    curfew.data.save(first, tmp_path)
    again = stateful.StatefulDataLoader(list(range(20)), batch_size=2)
    assert curfew.data.load(again, tmp_path)
    rest = [b.tolist() for b in again]
    assert [b.tolist() for b in seen] + rest == [[n, n + 1] for n in range(0, 20, 2)]


def test_killed_training_sees_each_batch_once(tmp_path):
    record, rng, kills = tmp_path / "record.json", random.Random(3), 0
    source = os.path.dirname(os.path.dirname(os.path.abspath(curfew.__file__)))
    for _ in range(200):
        child = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(tmp_path), str(record)], env={**os.environ, "PYTHONPATH": source}
        )
        time.sleep(rng.uniform(0.2, 1.0))
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
        child.wait()
        if record.exists():
            break
    seen = json.loads(record.read_text())
    want = [b for epoch in range(3) for b in shuffled(epoch)]
    assert kills > 0
    assert seen == want
