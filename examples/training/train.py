"""Trains a residual network in JAX, on one CPU or GPU, and can be ended at any moment.

    pip install jax ./python
    python examples/training/train.py --dir ckpt --steps 200 --every 20

It goes on from the newest save in the folder. Under curfew it says how far it is and which
saves are complete, and saves once more when it is asked to stop. Without curfew it runs the
same and says nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import curfew

WIDTH, BLOCKS = 32, 53  # 3 arrays a block, and 2 more: 161


def start() -> dict[str, jax.Array]:
    keys = iter(jax.random.split(jax.random.key(0), BLOCKS + 2))
    params = {"in": jax.random.normal(next(keys), (1, WIDTH)), "out": jnp.zeros((WIDTH, 1))}
    for b in range(BLOCKS):
        params[f"{b:02}.weight"] = jax.random.normal(next(keys), (WIDTH, WIDTH)) / WIDTH**0.5
        params[f"{b:02}.bias"] = jnp.zeros(WIDTH)
        params[f"{b:02}.scale"] = jnp.full((), 0.1)
    return params


def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    h = x @ params["in"]
    for b in range(BLOCKS):
        h = h + params[f"{b:02}.scale"] * jnp.tanh(h @ params[f"{b:02}.weight"] + params[f"{b:02}.bias"])
    return jnp.mean((h @ params["out"] - jnp.sin(3 * x)) ** 2)


@jax.jit
def update(params: dict[str, jax.Array], step: int) -> tuple[dict[str, jax.Array], jax.Array]:
    # The data of a step follows from its number, so a restart sees the same data.
    x = jax.random.uniform(jax.random.fold_in(jax.random.key(1), step), (64, 1), minval=-1, maxval=1)
    value, gradient = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.001 * g, params, gradient), value


def save(folder: Path, params: dict[str, jax.Array], step: int) -> None:
    """Writes every array to a file of its own, and renames the folder when it is whole."""
    final, temporary = folder / str(step), folder / f".{step}"
    if not final.exists():
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, value in params.items():
            np.save(temporary / f"{name}.npy", value)
        os.rename(temporary, final)
    curfew.save_done(final, step)
    # The save before stays until this one is complete; older ones go.
    for old in saves(folder)[:-2]:
        shutil.rmtree(folder / str(old))


def saves(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*")) if folder.is_dir() else []


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dir", type=Path, default=Path("ckpt"), help="folder of the saves")
    arguments.add_argument("--steps", type=int, default=200)
    arguments.add_argument("--every", type=int, default=20, help="steps between two saves")
    given = arguments.parse_args()

    params, step = start(), 0
    if saves(given.dir):
        step = saves(given.dir)[-1]
        params = {name: jnp.asarray(np.load(given.dir / str(step) / f"{name}.npy")) for name in params}
    value = None
    with curfew.save_on_sigterm(lambda: save(given.dir, params, step)):
        while step < given.steps and not curfew.should_stop():
            params, value = update(params, step + 1)
            step += 1
            curfew.step(step)
            if step % given.every == 0 or step == given.steps:
                save(given.dir, params, step)
    digest = hashlib.sha256(b"".join(np.asarray(params[name]).tobytes() for name in sorted(params))).hexdigest()
    print(f"step {step}, loss {value}, weights {digest[:16]}")


if __name__ == "__main__":
    main()
