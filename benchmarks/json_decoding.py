"""Time and peak memory of reading a capped GQA training file, against `json.load` on it.

    python benchmarks/json_decoding.py [--records 1000000] [--cap 3000]

Writes a synthetic file in the official layout to a temporary folder, reads it twice in
processes of their own, and prints both figures and their ratios. The claims: at most half the
time, and a quarter of the memory.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

READERS = {
    "json.load": "import json; data = json.load(open(path)); read = len(data)",
    "GQA": (
        "from qpriv.datasets.gqa import GQA; report = GQA(root, cap=cap).report; "
        "read, kept = report.read, report.kept"
    ),
}

MEASURE = """
import resource, sys, time
path, root, cap = sys.argv[1], sys.argv[2], int(sys.argv[3])
{imports}
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(read, seconds, peak)
"""


def write_questions(path: Path, records: int, seed: int = 0) -> None:
    """Write a GQA training file of so many records, thirteen an image, fields as released."""
    rng = random.Random(seed)
    things = ["pond", "cart", "chalkboard", "traffic light", "vase", "pitcher", "shirt", "picture"]
    with path.open("w") as file:
        file.write("{")
        for index in range(records):
            one, other = rng.sample(things, 2)
            image, obj = str(2300000 + index // 13), str(rng.randrange(10**6, 10**7))
            answer = rng.choice(["yes", "no", one])
            record = {
                "semantic": [
                    {"operation": "select", "dependencies": [], "argument": f"{one} ({obj})"},
                    {"operation": "relate", "dependencies": [0], "argument": f"{other},near,s"},
                    {"operation": "exist", "dependencies": [1], "argument": "?"},
                ],
                "entailed": [f"{index + k:08d}" for k in range(1, 3)],
                "equivalent": [f"{index:08d}"],
                "question": f"Is there a {one} near the {other} that is on the left side?",
                "imageId": image,
                "isBalanced": True,
                "groups": {"global": None, "local": f"13-{one}_{other}"},
                "answer": answer,
                "semanticStr": f"select: {one} ({obj})->relate: {other},near,s [0]->exist: ? [1]",
                "annotations": {"answer": {}, "question": {"3": obj}, "fullAnswer": {"4": obj}},
                "types": {"detailed": "existRelS", "semantic": "rel", "structural": "verify"},
                "fullAnswer": f"{answer.title()}, there is a {one} near the {other}.",
            }
            file.write(("" if index == 0 else ", ") + f'"{index:08d}": {json.dumps(record)}')
        file.write("}")


def measure(reader: str, path: Path, cap: int) -> tuple[int, float, float]:
    """Return records read, seconds and peak MiB of a reader in a fresh process."""
    imports, statement = "", READERS[reader]
    if reader == "GQA":
        imports, statement = statement.split("; ", 1)
    script = MEASURE.format(imports=imports, statement=statement)
    command = [sys.executable, "-c", script, str(path), str(path.parent), str(cap)]
    read, seconds, peak = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.split()
    return int(read), float(seconds), float(peak)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--cap", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train_balanced_questions.json"
        write_questions(path, options.records)
        print(f"{options.records} records, {path.stat().st_size / 2**20:.0f} MiB")
        figures = {reader: measure(reader, path, options.cap) for reader in READERS}
    for reader, (read, seconds, peak) in figures.items():
        print(f"{reader:>10}: {read} read, {seconds:6.2f} s, {peak:6.0f} MiB peak")
    (_, seconds, peak), (_, our_seconds, our_peak) = figures.values()
    print(f"ratio: {our_seconds / seconds:.3f} of the time, {our_peak / peak:.3f} of the memory")


if __name__ == "__main__":
    main()
