"""One of several ranks that step together, as collective operations make them.

Usage: ranks.py STEPS FOLDER. FOLDER is outside of the job. A rank whose peers are silent fails with exit code 1.
"""

import json
import os
import sys
import time

import curfew

steps, folder = int(sys.argv[1]), sys.argv[2]
rank, ranks = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
file = os.path.join(os.environ["CURFEW_CHECKPOINT_DIR"], "model.json")
n = 0
if os.path.exists(file):
    with open(file) as saved:
        n = json.load(saved)["step"]


def share(step):
    at = os.path.join(folder, f"rank-{rank}")
    with open(at + ".tmp", "w") as out:
        out.write(str(step))
    os.replace(at + ".tmp", at)


def meet(step):
    share(step)
    for peer in range(ranks):
        since = time.monotonic()
        while True:
            try:
                with open(os.path.join(folder, f"rank-{peer}")) as f:
                    if abs(int(f.read()) - step) <= 1:
                        break
            except FileNotFoundError:
                pass
            if time.monotonic() - since > 20:
                sys.exit(f"rank {peer} is silent at step {step}")
            time.sleep(0.01)


with open(os.path.join(folder, "starts"), "a") as out:
    print(rank, os.getpid(), n, os.environ["MASTER_ADDR"], file=out)
print(f"rank {rank} goes on from step {n}", flush=True)
while n < steps:
    meet(n + 1)
    n += 1
    curfew.step(n)
    if n % 5 == 0 or n == steps:
        with open(file + ".tmp", "w") as out:
            json.dump({"step": n, "rank": rank}, out)
        os.replace(file + ".tmp", file)
        curfew.save_done(file, n)
    time.sleep(0.05)
