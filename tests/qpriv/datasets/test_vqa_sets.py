from functools import partial

import pytest

from qpriv.datasets.conversations import Conversations
from qpriv.datasets.gqa import GQA
from qpriv.datasets.okvqa import OKVQA
from qpriv.datasets.path_vqa import PathVQA
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.vqa_rad import VQARAD
from qpriv.datasets.vqav2 import VQAv2
from tests.data.conversations import data as conversations
from tests.data.gqa import data as gqa
from tests.data.okvqa import data as okvqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2
from tests.qpriv.datasets.contract import VQASetContract


def members(kind, release, mirror=None):
    """Return the three fixtures of a member of the family."""
    return (
        pytest.fixture(lambda self: kind),
        pytest.fixture(lambda self: release),
        pytest.fixture(lambda self: mirror),
    )


class TestGQA(VQASetContract):
    splits_in_release = ("train", "val", "testdev", "test")
    splits_in_mirror = ("train", "testdev")
    main_file = "train_balanced_questions.json"
    kind, release, mirror = members(GQA, gqa.write_release, gqa.write_mirror)


class TestVQAv2(VQASetContract):
    splits_in_release = ("train", "val", "test")
    splits_in_mirror = ("val", "test")
    main_file = "v2_OpenEnded_mscoco_train2014_questions.json"
    kind, release, mirror = members(VQAv2, vqav2.write_release, vqav2.write_mirror)


class TestOKVQA(VQASetContract):
    splits_in_release = ("train", "val")
    splits_in_mirror = ("val",)
    main_file = "OpenEnded_mscoco_train2014_questions.json"
    kind, release, mirror = members(OKVQA, okvqa.write_release, okvqa.write_mirror)


class TestSLAKE(VQASetContract):
    splits_in_release = ("train", "val", "test")
    splits_in_mirror = splits_in_release
    main_file = "train.json"
    kind, release, mirror = members(SLAKE, slake.write_release, slake.write_mirror)


class TestChineseSLAKE(VQASetContract):
    splits_in_release = ("train", "val", "test")
    main_file = "train.json"
    kind, release, mirror = members(partial(SLAKE, lang="zh"), slake.write_release)


class TestVQARAD(VQASetContract):
    splits_in_release = ("train", "val", "test")
    splits_in_mirror = ("test",)
    leaks_as_released = True
    main_file = "VQA_RAD Dataset Public.json"
    kind, release, mirror = members(VQARAD, vqa_rad.write_release, vqa_rad.write_mirror)


class TestMevfVQARAD(VQASetContract):
    splits_in_release = ("train", "val", "test")
    leaks_as_released = True
    main_file = "trainset.json"
    kind, release, mirror = members(VQARAD, vqa_rad.write_mevf)


class TestPathVQA(VQASetContract):
    splits_in_release = ("train", "val", "test")
    splits_in_mirror = splits_in_release
    main_file = "train_qa.pkl"
    kind, release, mirror = members(PathVQA, path_vqa.write_release, path_vqa.write_mirror)


def read_conversations(root, split="train", cap=None, seed=0):
    file = f"{split}.json" if split in Conversations.splits else "train.json"
    return Conversations(root, split, file, cap, seed)


read_conversations.rule = Conversations.rule


class TestConversations(VQASetContract):
    splits_in_release = ("train", "val", "test")
    main_file = "train.json"
    kind, release, mirror = members(read_conversations, conversations.write_release)
