"""Every attack beside a plain loop for the same numbers, CPU time of one thread, one run.

    python -m benchmarks.attacks [--only membership] [--shadows 16]

From the root of the repository. Columns: ours, the plain loop, their ratio, the largest difference
of the two results. The plain loops are those of the tests, written from the papers. Shadows take
most of the time; ``--shadows 4`` tells nearly the same.
"""

import argparse

import torch

from benchmarks.attacks import gradients, membership, reconstruction

PAGES = ("reconstruction", "gradients", "membership")


def main(only: str | None, shadows: int) -> None:
    """Run the pages and print a line for each pair as it is done."""
    torch.set_num_threads(1)
    pages = {
        "reconstruction": reconstruction.pairs,
        "gradients": gradients.pairs,
        "membership": lambda: membership.pairs(shadows),
    }
    for name in PAGES if only is None else [only]:
        for pair in pages[name]():
            print(pair.run(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PAGES)
    parser.add_argument("--shadows", type=int, default=16)
    chosen = parser.parse_args()
    main(chosen.only, chosen.shadows)
