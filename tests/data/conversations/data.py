"""Fake conversation files as LLaVA and LLaVA-Med write them."""

import json

from tests.data import pictures

IMAGES = {"train": ["a/1.jpg", "a/2.jpg", "b/1.jpg"], "val": ["c/1.jpg"], "test": ["c/2.jpg"]}


def records(split):
    """Return the records of a split; one is text only, one is spelt as LLaVA-Med spells it."""
    rows = [
        {
            "id": f"{split}-{number}",
            "image": image,
            "conversations": [
                {"from": "human", "value": "<image>\nIs it a cat?"},
                {"from": "gpt", "value": "yes"},
                {"from": "human", "value": "What colour is it?"},
                {"from": "gpt", "value": "Black."},
            ],
        }
        for number, image in enumerate(IMAGES[split])
    ]
    rows[0]["answer_type"] = "OPEN"
    rows[0]["conversatons"] = rows[0].pop("conversations")[:2]
    rows.append({"id": "text", "conversations": [{"from": "human", "value": "Hi"}]})
    return rows


def write_release(root):
    """Write a file a split, and the images."""
    root.mkdir(parents=True, exist_ok=True)
    for split, images in IMAGES.items():
        (root / f"{split}.json").write_text(json.dumps(records(split)))
        for image in images:
            pictures.save(root / "images" / image, sum(map(ord, image)))
    return root
