"""A training whose result depends on every step and on the order of its data.

Usage: train.py STEPS RECORD. Each step appends "pid step" to RECORD, which is outside of the job.
"""

import json
import os
import random
import sys
import time

import curfew

steps, record = int(sys.argv[1]), sys.argv[2]
file = os.path.join(os.environ["CURFEW_CHECKPOINT_DIR"], "model.json")
rng, n, order = random.Random(7), 0, []
weights = [0.0] * 64
if os.path.exists(file):
    with open(file) as saved:
        kept = json.load(saved)
    n, order = kept["step"], kept["order"]
    weights = [float.fromhex(w) for w in kept["weights"]]
    rng.setstate((kept["rng"][0], tuple(kept["rng"][1]), kept["rng"][2]))


def save():
    state = {"step": n, "weights": [w.hex() for w in weights], "rng": rng.getstate(), "order": order}
    with open(file + ".tmp", "w") as out:
        json.dump(state, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(file + ".tmp", file)
    curfew.save_done(file, n)


with curfew.save_on_sigterm(save):
    while n < steps and not curfew.should_stop():
        if not order:
            order = list(range(64))
            rng.shuffle(order)
        example = order.pop()
        weights[example] = weights[example] * 0.99 + rng.gauss(0, 1) * 1e-3 + weights[(example + 1) % 64] * 1e-2
        n += 1
        with open(record, "a") as out:
            out.write(f"{os.getpid()} {n} {time.time():.6f}\n")
        curfew.step(n)
        if n % 7 == 0:
            save()
        time.sleep(0.02)
if n == steps:
    save()
