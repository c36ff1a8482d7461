"""Memory and time of ``qpriv prepare canaries`` over a million questions, one run.

    python benchmarks/million_questions.py [QUESTIONS]

The questions are those of a few hundred fake documents in DocVQA's own layout, repeated with new
ids, as PFL-DocVQA has a million on its invoices. Pages are read one by one: what grows with the
number of questions is the list of questions alone.
"""

import json
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.datasets.documents.preparation import prepare_canaries
from tests.qpriv.datasets.documents.docvqa_layout import write_docvqa


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_release(root: Path, questions: int, documents: int = 300) -> None:
    maker = DocumentMaker(seed=5)
    made = (maker.questions(maker.document(f"d{n}"), "train") for n in range(documents))
    path = write_docvqa([sample for page in made for sample in page], root, "train")
    records = json.loads(path.read_text())["data"]
    with path.open("w", encoding="utf-8") as file:
        file.write('{"dataset_name": "docvqa", "data": [')
        for number in range(questions):
            record = {**records[number % len(records)], "questionId": number}
            file.write(("," if number else "") + json.dumps(record))
        file.write("]}")


def main(questions: int = 1_000_000) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_release(root / "docvqa", questions)
        before, started = megabytes(), time.process_time()
        training = DocVQA(root / "docvqa", "train").samples
        loaded, reading = megabytes(), time.process_time() - started
        print(f"{len(training)} questions read in {reading:.0f} s of CPU time: "
              f"{loaded - before:.0f} MB at the peak", flush=True)  # fmt: skip
        settings = Curation(max_train_count=questions, max_template_share=1.0)
        for number in (100, 1000):
            started = time.process_time()
            prepared = prepare_canaries(training, root / f"of-{number}", settings, number)
            took = time.process_time() - started
            print(f"{number} answers judged in {took:.0f} s, {len(prepared.canaries)} kept: "
                  f"{megabytes() - loaded:.0f} MB more", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
