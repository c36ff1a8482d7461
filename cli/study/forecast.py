"""What a study costs: stated before it runs, corrected by what its runs really took."""

from collections.abc import Mapping, Sequence

from .config import Trial


class Forecast:
    """Minutes of each run: observed of the run itself, of its like, or stated and corrected.

    A stage that ran in another seed predicts itself. What never ran is predicted by its stated
    cost times the factor by which everything so far went over or under its own.

    Args:
        cells: All runs of the study.
        observed: Minutes that finished runs took, by key.
        jobs: Runs at a time.
    """

    def __init__(
        self, cells: Sequence[Trial], observed: Mapping[str, float], jobs: int = 1
    ) -> None:
        self.cells, self.observed, self.jobs = cells, dict(observed), jobs

    def minutes(self, cell: Trial) -> float:
        """Return what a run takes, or took."""
        if cell.key in self.observed:
            return self.observed[cell.key]
        alike = [
            self.observed[other.key]
            for other in self.cells
            if other.name == cell.name and other.key in self.observed
        ]
        return sum(alike) / len(alike) if alike else cell.minutes * self._factor

    @property
    def left(self) -> float:
        """Return the minutes until all runs are done."""
        left = [self.minutes(cell) for cell in self.cells if cell.key not in self.observed]
        return sum(left) / self.jobs

    @property
    def whole(self) -> float:
        """Return the minutes of the whole study."""
        return sum(self.minutes(cell) for cell in self.cells) / self.jobs

    @property
    def _factor(self) -> float:
        done = [cell for cell in self.cells if cell.key in self.observed]
        stated = sum(cell.minutes for cell in done)
        return sum(self.observed[cell.key] for cell in done) / stated if stated else 1.0

    def table(self, budget: float | None = None) -> str:
        """Return the forecast as text: a line for each stage, and the sum.

        Args:
            budget: Minutes that it may cost; over it the stage that costs most is told, and what
                can be done.
        """
        stages = dict.fromkeys(cell.stage for cell in self.cells)
        width = max(len(stage) for stage in stages)
        minutes: dict[str, float] = {}
        lines = [f"{'stage':<{width}}  runs  done  minutes"]
        for stage in stages:
            own = [cell for cell in self.cells if cell.stage == stage]
            done = sum(cell.key in self.observed for cell in own)
            minutes[stage] = sum(self.minutes(cell) for cell in own)
            lines.append(f"{stage:<{width}}  {len(own):4d}  {done:4d}  {minutes[stage]:7.1f}")
        if budget is not None and self.whole > budget:
            longest = max(minutes, key=lambda stage: minutes[stage])
            lines[1 + list(stages).index(longest)] += (
                "  <- most of it: leave the stage out, take fewer seeds or values there, give more "
                "--jobs, or raise budget_minutes"
            )
        name = "left" if self.jobs == 1 else f"left, {self.jobs} runs at a time"
        return "\n".join([*lines, f"{name:<{width + 12}}  {self.left:7.1f}"])
