"""iDLG against the published loop: images recovered and CPU time, interleaved in one run.

    python benchmarks/gradient_inversion.py [--seeds 8] [--mnist FOLDER]

On scikit-learn's digits, or on MNIST where the folder holds its official idx files. Both run on
one thread, on the same networks and images, to the same absolute tolerance of 1e-6.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # the networks are those of the tests

from qpriv.attacks.gradients.inversion import GradientInversion
from qpriv.datasets.dpriv.mnist import MNIST
from tests.qpriv.attacks.gradients.classifiers import LeNet, digits
from tests.qpriv.attacks.gradients.test_inversion import observe, published_loop, shared_gradient


def pictures(mnist: str | None) -> tuple[Tensor, Tensor]:
    if mnist is None:
        return digits()
    samples = list(MNIST(mnist, "test"))[:2000]
    pixels = np.stack([np.asarray(sample.image.load().convert("L")) for sample in samples])
    labels = [int(sample.meta["label"]) for sample in samples]
    return torch.tensor(pixels / 255, dtype=torch.float32)[:, None], torch.tensor(labels)


def main(seeds: int, mnist: str | None) -> None:
    torch.set_num_threads(1)
    images, labels = pictures(mnist)
    ours, theirs = [], []
    for seed in range(seeds):
        torch.manual_seed(seed)
        net = LeNet("sigmoid").published_weights()
        row = torch.randint(len(images), (1,))
        observed = observe(net, images[row], labels[row])

        started = time.process_time()
        distance, count = published_loop(net, observed, seed)
        theirs.append((time.process_time() - started, distance < 1e-6, count))

        started = time.process_time()
        found = GradientInversion(seed=seed).invert(shared_gradient(net), observed, (1, 28, 28))
        error = float((found.image - images[row]).square().mean())
        ours.append((time.process_time() - started, error < 1e-3, found.match.evaluations))

    for name, runs in (("published loop", theirs), ("ours", ours)):
        seconds, solved, counts = (np.array(column) for column in zip(*runs, strict=True))
        print(f"{name}: solved {solved.sum()}/{seeds}, CPU {seconds.mean():.2f} s an image "
              f"(median {np.median(seconds):.2f}), {np.median(counts):.0f} evaluations (median)")  # fmt: skip
    both = [np.array([run[0] for run in runs]) for runs in (ours, theirs)]
    print(f"CPU time as a share of the published loop's: {both[0].sum() / both[1].sum():.2f} in all, "
          f"{np.median(both[0] / both[1]):.2f} median over images")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--mnist")
    chosen = parser.parse_args()
    main(chosen.seeds, chosen.mnist)
