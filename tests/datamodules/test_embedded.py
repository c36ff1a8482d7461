from datamodules.easy_vqa import EasyVQA
from datamodules.face_bags import FaceBags


def test_easy_vqa_serves_the_official_test_set():
    data = EasyVQA(max_train=10)
    assert len(data.samples("test")) == 9_673
    assert len(data.members()) == 10
    assert data.answer_rule == "exact"


def test_face_bags_serve_the_numbers_asked_for():
    data = FaceBags(num_train=12, num_eval=6)
    assert [len(data.read(split)) for split in ("train", "val", "test")] == [12, 6, 6]
    assert sum(data.read("train")[index].sensitive for index in range(12)) == 6
