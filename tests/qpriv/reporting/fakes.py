"""Hand-made runs, with figures like those of a small study, written as a run writes them."""

import json
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from qpriv.curve import CURVES_FILE, Curve, append_curves
from qpriv.histogram import HISTOGRAMS_FILE, Histogram, append_histograms
from qpriv.result import Result, append_results

N_TOKENS = 64
# policy: accuracy, share of tokens dropped, SER, face tokens, face PSNR, PSNR, top-1, AUC same
POLICIES = {
    "off": (0.86, 0.0, None, 1.0, 18.4, 21.3, 0.31, 0.948),
    "fixed(0.3,fused)": (0.82, 0.3, 2.41, 0.04, 13.5, 17.6, 0.030, 0.955),
    "fixed(0.5,fused)": (0.80, 0.5, 2.09, 0.02, 13.3, 16.5, 0.022, 0.967),
    "fixed(0.7,fused)": (0.77, 0.7, 1.98, 0.02, 12.4, 15.6, 0.018, 0.975),
    "fixed(0.9,fused)": (0.71, 0.9, 2.09, 0.00, 10.7, 14.8, 0.020, 0.984),
    "fixed(0.3,utility)": (0.85, 0.3, 1.15, 0.57, 16.7, 19.0, 0.20, 0.950),
    "fixed(0.5,utility)": (0.83, 0.5, 1.05, 0.45, 15.9, 17.9, 0.15, 0.958),
    "fixed(0.7,utility)": (0.81, 0.7, 0.99, 0.32, 14.9, 16.9, 0.10, 0.966),
    "fixed(0.9,utility)": (0.74, 0.9, 1.04, 0.07, 12.3, 15.1, 0.04, 0.978),
    "dtp(fused)": (0.835, 0.256, 2.45, 0.24, 14.9, 18.2, 0.09, 0.953),
    "dtp(utility)": (0.842, 0.256, 1.19, 0.65, 16.9, 19.2, 0.21, 0.952),
    "constant(fused)": (0.828, 0.256, 2.4, 0.05, 13.7, 17.9, 0.05, 0.954),
    "random(0.5)": (0.81, 0.5, 1.02, 0.50, 16.1, 18.0, 0.17, 0.96),
}
FORA = {
    "attacker": "server",
    "active": False,
    "auxiliary": "in-domain scenes",
    "knows_positions": True,
    "client": "supervised",
    "cut": 4,
    "steps": 400,
    "short": True,
}


def result(name: str, value: float | None, **given: object) -> Result:
    """Return a result of FaceScenes with an interval of the given half width."""
    half = given.pop("half", None)
    ci = None if half is None or value is None else (value - half, value + half)
    settings = {"n": 300, "dataset": "FaceScenes/validation", "policy": "off", "seed": 0, "ci": ci}
    return Result(name=name, value=value, **{**settings, **given})  # type: ignore[arg-type]


def policy_results(policy: str, seed: int, epochs: int = 3) -> list[Result]:
    """Return what one fit under a policy writes, with noise that depends on seed and epoch."""
    accuracy, ratio, ser, face, face_psnr, psnr, top1, auc = POLICIES[policy]
    rng = np.random.default_rng([seed, sum(policy.encode())])
    rows: list[Result] = []
    for epoch in range(epochs):
        at = {"policy": policy, "seed": seed, "epoch": epoch}
        late = epochs - 1 - epoch
        rows += [
            result("accuracy", accuracy - 0.04 * late + rng.normal(0, 0.006), half=0.04, **at),
            result("kept_tokens", (1 - ratio) * N_TOKENS, unit="tokens", half=0.4, **at),
            result(
                "sensitive_tokens_kept", max(0.0, face + rng.normal(0, 0.002)), half=0.012, **at
            ),
            result("activation_bytes_up", (1 - ratio) * 64 * 768.0 + 9000, unit="bytes", **at),
            result("activation_bytes_down", (1 - ratio) * 64 * 768.0 + 9000, unit="bytes", **at),
            result("val/loss", 0.6 + 0.15 * late, **at),
        ]
        for kind in ("count", "colour", "exist"):
            rows.append(result(f"accuracy/{kind}", accuracy + rng.normal(0, 0.03), half=0.07, **at))
        name = "sensitivity_exclusion_ratio"
        rows.append(
            result(name, ser, half=0.1, **at)
            if ser
            else result(name, None, status="not applicable", **at)
        )
        rows += _fora_results(face_psnr - 0.3 * late, psnr - 0.3 * late, top1, rng, at)
        rows += _membership_results(auc - 0.1 * late, rng, at)
    return rows


def _fora_results(
    face_psnr: float, psnr: float, top1: float, rng: np.random.Generator, at: dict
) -> list[Result]:
    attack = {"n": 250, "attack": FORA, **at}
    db = {"unit": "dB", "half": 0.2, **attack}
    top = {**attack, "attack": {**FORA, "gallery": 60, "chance": 1 / 60}}
    return [
        result("attack/supervised_inversion/psnr_sensitive", face_psnr + rng.normal(0, 0.06), **db),
        result("attack/supervised_inversion/floor_mean_face", 15.96, **db),
        result("attack/supervised_inversion/psnr", psnr + rng.normal(0, 0.05), **db),
        result("attack/supervised_inversion/floor_mean_image", 13.93, **db),
        result("attack/supervised_inversion/psnr_kept", psnr + 1.2, **db),
        result("attack/supervised_inversion/psnr_dropped", psnr - 2.5, **db),
        result("attack/supervised_inversion/ssim", 0.55, half=0.01, **attack),
        result(
            "attack/supervised_inversion/reid_top1",
            max(0.0, top1 + rng.normal(0, 0.002)),
            half=0.01,
            **top,
        ),
        result("attack/supervised_inversion/reid_top5", min(1.0, 2.6 * top1), half=0.02, **top),
    ]


def _membership_results(auc: float, rng: np.random.Generator, at: dict) -> list[Result]:
    rows = []
    for query, drop in (("same", 0.0), ("off", 0.2), ("resampled", 0.22)):
        if at["policy"] == "off" and query != "same":
            continue
        attack = {"query_policy": query, "shadows": 2, "short": True}
        shared = {"n": 200, "attack": attack, **at}
        shown = auc - drop + rng.normal(0, 0.004)
        rows += [
            result("attack/membership/auc", shown, half=0.03, **shared),
            result(
                "attack/membership/tpr_at_1_fpr", max(0.01, 3 * (shown - 0.7)), half=0.1, **shared
            ),
            result("attack/membership/blind_auc", 0.507, half=0.04, **shared),
            result("attack/membership/balanced_accuracy", shown - 0.05, half=0.04, **shared),
        ]
    return rows


def write_run(
    folder: Path,
    results: list[Result],
    *,
    config: str = "seed_everything: 0\n",
    tags: dict[str, str] | None = None,
) -> Path:
    """Write a run folder with these results."""
    append_results(folder / "results.jsonl", results)
    (folder / "config.yaml").write_text(config)
    if tags is not None:
        cell = {"study": "fake", "stage": folder.name, "tags": tags}
        (folder / "cell.json").write_bytes(msgspec.json.encode(cell))
    return folder


SAME = {"query_policy": "same", "nonmembers": 100}


def write_curves(folder: Path, policy: str, seed: int) -> Path:
    """Add the error rates of two attacks to a run, for each of two epochs."""
    alarms = np.geomspace(1e-3, 1, 31).round(6)
    for epoch in (1, 2):
        for name, strength in (("roc", 0.35), ("lira_roc", 0.25)):
            rates = alarms ** (strength + 0.2 * (2 - epoch) + 0.01 * seed)
            at = {
                "policy": policy,
                "seed": seed,
                "epoch": epoch,
                "attack": SAME,
            }
            curve = Curve(
                name=f"attack/membership/{name}",
                x=tuple(alarms.tolist()),
                y=tuple(rates.tolist()),
                n=200,
                **at,
            )
            append_curves(folder / CURVES_FILE, [curve])
    return folder


def write_media(folder: Path, policy: str, *, kind: str, private: bool, epoch: int = 2) -> Path:
    """Add one picture to a run: stripes, since a fake shows nobody."""
    picture = folder / "media" / f"{kind}-{epoch}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((96, 4 * 96, 3), np.uint8)
    pixels[:, ::8] = (200, 120, 40)
    pixels[::12] = (40, 90, 160)
    Image.fromarray(pixels).save(picture)
    line = {
        "kind": kind,
        "path": f"media/{picture.name}",
        "caption": f"{kind} under {policy}: four scenes, the second row rebuilt.",
        "alt": f"Four scenes under {policy}",
        "policy": policy,
        "epoch": epoch,
        "seed": 0,
        "private": private,
    }
    with (folder / "media.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return folder


def write_study(root: Path, seeds: tuple[int, ...] = (0, 1, 2), epochs: int = 3) -> Path:
    """Write a whole study: every policy, an alpha sweep under both branches, one failed probe."""
    for seed in seeds:
        for policy in POLICIES:
            folder = root / f"{policy.replace('(', '-').replace(')', '').replace(',', '-')}-{seed}"
            write_run(folder, policy_results(policy, seed, epochs))
            write_curves(folder, policy, seed)
            if seed == 0 and policy in ("off", "fixed(0.5,fused)", "dtp(fused)"):
                write_media(folder, policy, kind="reconstruction", private=True)
                write_media(folder, policy, kind="kept_tokens", private=True)
        _write_sweep(root, seed)
    failed = {"status": "failed", "note": "out of its time budget", "policy": "downsample(0.5)"}
    failed_run = [
        result("accuracy", 0.79, half=0.04, policy="downsample(0.5)"),
        result(
            "attack/supervised_inversion/psnr_sensitive", None, unit="dB", attack=FORA, **failed
        ),
    ]
    write_run(root / "downsample-0", failed_run)
    return root


def document_results(model: str, memorised: float, defence: str = "none") -> list[Result]:
    """Return some of what a run of a document study writes."""
    setting = {"model": model, "resolution": 0.5}
    given = {"dataset": "FakeDocuments", "policy": "", "n": 60, "half": 5.0, "defence": defence}

    def count(name: str, value: float, **more: object) -> Result:
        return result(
            f"extraction/{name}", value, unit="canaries", attack={**setting, **more}, **given
        )

    return [
        result("anls", 0.4, attack=setting, **{**given, "half": 0.05}),
        count("extractable", memorised + 3),
        count("generalised", 3.0),
        count("memorised", memorised),
        count("memorised_pii", memorised / 2),
        *(count("memorised", memorised / 4, kind=kind) for kind in ("person", "contact")),
        *(count("memorised", memorised / times, repetition=times) for times in (1, 2, 10)),
        count("memorised", memorised / 2, context="no text"),
        count("memorised_and_said", memorised / 3, context="no text"),
    ]


def write_document_study(root: Path) -> Path:
    """Write a small document study: f, f with blocking, and scores with their histograms."""
    for model, memorised, defence in (("f", 20.0, "none"), ("f_EB", 0.0, "extraction blocking")):
        folder = write_run(root / model, document_results(model, memorised, defence))
        _write_record(folder, model, {"resolution": "0.5"})
    scored = {"model": "f", "resolution": 0.5, "splits": 8}
    given = {"dataset": "FakeDocuments", "policy": "", "n": 60, "half": 0.1}
    scores = [
        result(f"extraction/{name}", 0.4, attack={**scored, "page": page}, **given)
        for name in ("memorisation", "simplicity")
        for page in ("erased", "whole")
    ]
    folder = write_run(root / "scores", scores)
    _write_record(folder, "scores", {"resolution": "0.5"})
    counts = ((0, 1), (3, 0))
    histograms = [
        Histogram(
            name="extraction/scores", n=4, seed=0, dataset="FakeDocuments", of=label,
            setting={"splits": 8, "set": label}, counts=counts,
            rows=("memorisation", -1, 1), columns=("simplicity", 0, 2),
        )
        for label in ("all canaries", "E - G", "G")
    ]  # fmt: skip
    append_histograms(folder / HISTOGRAMS_FILE, histograms)
    return root


def _write_record(folder: Path, stage: str, tags: dict[str, str]) -> None:
    record = {"study": "documents", "stage": stage, "tags": tags}
    (folder / "cell.json").write_text(json.dumps(record))


def _write_sweep(root: Path, seed: int) -> None:
    curves = {
        "random": (0.745, 0.72, 0.69, 0.675, 0.665),
        "grounded": (0.745, 0.765, 0.778, 0.79, 0.80),
    }
    for branch, accuracies in curves.items():
        for alpha, accuracy in zip((0, 0.25, 0.5, 0.75, 1), accuracies, strict=True):
            rng = np.random.default_rng([seed, int(alpha * 100), len(branch)])
            at = {
                "policy": "dtp(fused)" if alpha == 1 else f"dtp(fused,alpha={alpha:g})",
                "seed": seed,
                "epoch": 2,
            }
            rows = [
                result("accuracy", accuracy + rng.normal(0, 0.008), half=0.04, **at),
                result("kept_tokens", 47.6 + rng.normal(0, 0.1), unit="tokens", half=0.5, **at),
            ]
            write_run(root / f"alpha-{branch}-{alpha:g}-{seed}", rows, tags={"utility": branch})
