"""Fake ChestX-ray14: the table under each of its headers, the two lists, PNG images."""

from tests.data import pictures

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
PATIENTS = 10
AGES_OF_2017 = ["058Y", "006M", "365D"]


def rows(ages=("58",)):
    """Return the rows: two images a patient."""
    return [
        f"{_name(patient, visit)},{'Cardiomegaly|Effusion' if visit else 'No Finding'},{visit},"
        f"{patient},{ages[patient % len(ages)]},F,PA,2682,2749,0.143,0.143"
        for patient in range(1, PATIENTS + 1)
        for visit in range(2)
    ]


def _name(patient, visit):
    return f"{patient:08d}_{visit:03d}.png"


VARIANTS = {
    "v2020": (HEADER, rows()),
    "trailing comma": (HEADER + ",", [row + "," for row in rows()]),
    "patient sex": (HEADER.replace("Gender", "Sex"), rows()),
    "no blanks": (HEADER.replace(" ", ""), rows()),
    "quoted": (
        HEADER.replace("OriginalImage[Width,Height]", '"OriginalImage[Width,Height]"'),
        rows(),
    ),
}


def write_release(root, variant="v2020", ages=None):
    """Write the table, the lists and ``images_001/images/``; some pictures are grey or RGBA."""
    root.mkdir(parents=True, exist_ok=True)
    header, lines = VARIANTS[variant]
    lines = rows(ages) if ages else lines
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join([header, *lines]) + "\n")
    names = [_name(patient, visit) for patient in range(1, PATIENTS + 1) for visit in range(2)]
    (root / "train_val_list.txt").write_text("\n".join(names[:14]))
    (root / "test_list.txt").write_text("\n".join(names[14:]))
    box = f"{names[-1]},Infiltrate,1.5,2.5,4,3"
    (root / "BBox_List_2017.csv").write_text(
        f"Image Index,Finding Label,Bbox [x,y,w,h],,,\n{box}\n"
    )
    for number, name in enumerate(names):
        pictures.save(root / "images_001/images" / name, number, "RGBA" if number == 3 else "L")
    return root
