"""Extraction by one forward pass against a loop over ``generate``: canaries a second, one run.

    python benchmarks/extraction.py

Both run on one thread, on the embedded reader and the same queries, and must agree.
"""

import resource
import time

import torch

from qpriv.attacks.extraction import extract, full_pages
from qpriv.datasets.documents.fake_documents import DocumentMaker
from qpriv.models.documents.loading import load_document_model


def main(documents: int = 60) -> None:
    torch.set_num_threads(1)
    model = load_document_model("tiny").eval()
    maker = DocumentMaker(seed=5)
    samples = [s for n in range(documents) for s in maker.questions(maker.document(f"d{n}"), "val")]
    queries = list(full_pages(samples))

    started = time.process_time()
    said = []
    for query in queries:
        pages = model.encode(model.scanned([model.page(query.image)]), [query.question], [0])
        said.append(model.answer(pages, [query.question])[0].text in query.answers)
    loop = time.process_time() - started

    started = time.process_time()
    exact = extract(model, queries).exact.tolist()
    batched = time.process_time() - started

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    extract(model, (query for _ in range(10) for query in queries))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    print(f"{len(queries)} canaries, CPU time: generate one by one {len(queries) / loop:.1f}/s, "
          f"one pass {len(queries) / batched:.1f}/s, {loop / batched:.1f} times as fast")  # fmt: skip
    print(f"the same outputs: {said == exact}; ten times the canaries: {grown / 1024:.1f} MB more")


if __name__ == "__main__":
    main()
