"""`Conversations`: LLaVA-style conversation files that users own."""

from dataclasses import dataclass

from qpriv.datasets import conversations

from .released import ReleasedVQA


@dataclass(eq=False, repr=False, kw_only=True)
class Conversations(ReleasedVQA):
    """Question and answer pairs; see `qpriv.datasets.conversations.Conversations`.

    Args:
        train_file: Name of the training file.
        val_file: Name of the validation file.
        test_file: Name of the test file.
    """

    train_file: str = "train.json"
    val_file: str = "val.json"
    test_file: str = "test.json"

    source = conversations.Conversations

    def open(self, split: str) -> conversations.Conversations:
        """Return the pairs of a split's file."""
        files = {"train": self.train_file, "val": self.val_file, "test": self.test_file}
        return conversations.Conversations(
            self.root, split, files[split], self.cap, self.run_seed, **self.rows
        )
