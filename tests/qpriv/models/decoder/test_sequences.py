from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from qpriv.errors import ModelError
from qpriv.models.decoder.sequences import image_features, shorten

IMAGE, PAD = 9, 0
# two texts around a run of three image ids, the second padded right
IDS = torch.tensor([[1, IMAGE, IMAGE, IMAGE, 4, 5, 6], [1, 2, IMAGE, IMAGE, IMAGE, 7, PAD]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]])
LABELS = torch.tensor([[-100] * 5 + [5, 6], [-100] * 5 + [7, -100]])


@dataclass(frozen=True)
class Selection:
    kept: tuple[Tensor, ...]
    merged: tuple[Tensor, ...] | None = None
    mixing: tuple[Tensor, ...] | None = None


def shortened(selection, ids=IDS, mask=MASK, labels=LABELS, **options):
    return shorten(
        ids,
        mask,
        labels,
        image_token=IMAGE,
        pad_token=PAD,
        num_patches=3,
        selection=selection,
        **options,
    )


def kept(*rows: list[int]) -> Selection:
    return Selection(tuple(torch.tensor(row, dtype=torch.long) for row in rows))


def test_nothing_pruned_returns_the_input():
    found = shortened(None)
    assert torch.equal(found.input_ids, IDS)
    assert torch.equal(found.attention_mask, MASK)
    assert torch.equal(found.labels, LABELS)
    assert torch.equal(found.position_ids, torch.arange(7).expand(2, 7))
    assert found.image_spans == ((1, 4), (2, 5))


def test_right_padding_by_hand():
    found = shortened(kept([0, 2], [1]))
    assert found.input_ids.tolist() == [[1, 9, 9, 4, 5, 6], [1, 2, 9, 7, 0, 0]]
    assert found.attention_mask.tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert found.labels.tolist() == [[-100] * 4 + [5, 6], [-100] * 3 + [7, -100, -100]]
    assert found.position_ids.tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    assert found.image_spans == ((1, 3), (2, 3))


def test_left_padding_by_hand():
    found = shortened(kept([0, 2], [1]), side="left")
    assert found.input_ids.tolist() == [[1, 9, 9, 4, 5, 6], [0, 0, 1, 2, 9, 7]]
    assert found.attention_mask.tolist() == [[1] * 6, [0, 0, 1, 1, 1, 1]]
    assert found.labels.tolist() == [[-100] * 4 + [5, 6], [-100] * 5 + [7]]
    assert found.position_ids.tolist() == [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]]
    assert found.image_spans == ((1, 3), (4, 5))


def test_left_padded_input_gives_the_same_rows():
    ids, mask, labels = IDS.roll(0), MASK.roll(0), LABELS.roll(0)
    for tensor in (ids, mask, labels):
        tensor[1] = tensor[1].roll(1)
    left = shortened(kept([0, 2], [1]), ids, mask, labels)
    right = shortened(kept([0, 2], [1]))
    assert torch.equal(left.input_ids, right.input_ids)
    assert torch.equal(left.labels, right.labels)


def test_original_positions_keep_the_gaps():
    found = shortened(kept([0, 2], [1]), positions="original")
    assert found.position_ids.tolist() == [[0, 1, 3, 4, 5, 6], [0, 1, 3, 5, 0, 0]]


def test_keeping_nothing_leaves_the_text():
    found = shortened(kept([], []))
    assert found.input_ids.tolist() == [[1, 4, 5, 6], [1, 2, 7, 0]]
    assert found.image_spans == ((1, 1), (2, 2))


def test_a_row_short_of_an_image_id_is_named():
    ids = IDS.clone()
    ids[1, 2] = 3  # the totals of a batch could still agree, the row does not
    with pytest.raises(ModelError, match="row 1 holds 2 image tokens for 3 patches"):
        shortened(None, ids)


def test_image_ids_in_two_runs_are_refused():
    ids = torch.tensor([[IMAGE, 1, IMAGE, IMAGE]])
    ones = torch.ones_like(ids)
    with pytest.raises(ModelError, match="not one run"):
        shortened(None, ids, ones, ones)


def test_image_features_are_gathered_by_row():
    patches = torch.arange(12.0).view(2, 3, 2)
    first, second = image_features(patches, kept([0, 2], [1]))
    assert first.tolist() == [[0, 1], [4, 5]]
    assert second.tolist() == [[8, 9]]


def test_merged_tokens_of_another_number_have_no_original_places():
    same = Selection(kept([0, 2], [1]).kept, (torch.ones(2, 4), torch.ones(1, 4)))
    assert shortened(same, positions="original").position_ids[0].tolist() == [0, 1, 3, 4, 5, 6]
    other = Selection(same.kept, (torch.ones(2, 4), torch.ones(2, 4)))
    assert shortened(other).image_spans == ((1, 3), (2, 4))
    with pytest.raises(ModelError, match="2 merged tokens of row 1 have no place"):
        shortened(other, positions="original")


def test_weights_alone_say_what_is_merged():
    patches = torch.arange(6.0).view(1, 3, 2)
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    selection = Selection(kept([1]).kept, mixing=(weights,))
    assert image_features(patches, selection)[0].tolist() == [[1, 2], [4, 5], [0, 1]]
    assert shortened(selection, IDS[:1], MASK[:1], LABELS[:1]).image_spans == ((1, 4),)


def test_a_selection_for_another_batch_is_refused():
    with pytest.raises(ModelError, match="decision for 3 samples, batch of 2"):
        shortened(kept([0], [1], [2]))


def test_merged_features_replace_the_patches_and_their_count():
    merged = (torch.ones(2, 4), torch.zeros(0, 4))
    selection = Selection(kept([1], [0, 1]).kept, merged)
    assert image_features(torch.zeros(2, 3, 4), selection) == list(merged)
    assert shortened(selection).image_spans == ((1, 3), (2, 2))


def test_a_decision_for_another_batch_is_refused():
    with pytest.raises(ModelError, match="decision for 1 samples, batch of 2"):
        image_features(torch.zeros(2, 3, 4), kept([0]))
