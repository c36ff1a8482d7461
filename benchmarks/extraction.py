"""Extraction in batches against a loop over ``generate``: canaries a second, one run.

    python benchmarks/extraction.py

In batches means twice: decoding with a key-value cache, prompts of equal length together, and the
one forward pass that `extract` makes. All run on one thread, on the embedded reader and the same
queries, and must agree.
"""

import resource
import time

import torch

from qpriv.attacks.extraction.asking import extract, full_pages, generate
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
    decoded = [best.text in query.answers
               for (best,), query in zip(generate(model, queries), queries, strict=True)]  # fmt: skip
    together = time.process_time() - started

    started = time.process_time()
    exact = extract(model, queries).exact.tolist()
    batched = time.process_time() - started

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    extract(model, (query for _ in range(10) for query in queries))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    print(f"{len(queries)} canaries, CPU time of one thread")
    for name, took in (("generate, one by one", loop), ("generate, in batches", together),
                       ("one forward pass", batched)):  # fmt: skip
        print(f"  {name}: {len(queries) / took:.1f}/s, {loop / took:.1f} times the loop")
    print(f"the same outputs: {said == decoded == exact}")
    print(f"ten times the canaries: {grown / 1024:.1f} MB more")


if __name__ == "__main__":
    main()
