"""Compare two ``results.jsonl``, as before and after a change that must not move a figure.

    python -m benchmarks.compare_results OLD NEW [--rename OLD_NAME=NEW_NAME ...]

Figures are paired by name, data set, policy, defence, seed and epoch, and by their key where both
files know it alike; times and memory are left out. Exits with 1 if a value, n or interval differs,
or if a figure stands in one file only.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from qpriv.result import Result, read_results

Place = tuple[object, ...]
Value = tuple[object, ...]


def grouped(results: Iterable[Result], renamed: Mapping[str, str]) -> dict[Place, Counter[Value]]:
    """Return the values of each place; several settings of one attack share a place."""
    found: dict[Place, Counter[Value]] = defaultdict(Counter)
    for each in results:
        if each.varies:
            continue
        name = renamed.get(each.name, each.name)
        place = (name, each.dataset, each.policy, each.defence, each.seed, each.epoch)
        found[place][each.value, each.n, each.ci, each.status] += 1
    return dict(found)


def main() -> None:
    """Print how many places agree, and the first that do not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--most", type=int, default=20, help="differences shown")
    given = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in given.rename)
    old, new = grouped(read_results(given.old), renamed), grouped(read_results(given.new), {})
    differing = sorted((p for p in old.keys() & new.keys() if old[p] != new[p]), key=str)
    only_old, only_new = (sorted(a.keys() - b.keys(), key=str) for a, b in ((old, new), (new, old)))
    equal = len(old.keys() & new.keys()) - len(differing)
    print(f"{equal} equal, {len(differing)} differ, {len(only_old)} only in the old file, "
          f"{len(only_new)} only in the new one")  # fmt: skip
    for place in differing[: given.most]:
        print("differs:", *place, *(old[place] - new[place]), "->", *(new[place] - old[place]))
    for title, places in (("only old", only_old), ("only new", only_new)):
        for name, number in Counter(str(place[0]) for place in places).most_common(given.most):
            print(f"{title}: {name}, {number} times")
    if differing or only_old or only_new:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
