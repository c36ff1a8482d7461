"""Kinds of personal information."""

from enum import StrEnum


class PIIKind(StrEnum):
    """The seven kinds of the study (Pinto et al. 2024, arXiv 2407.08707, section 4)."""

    PLACE = "place"
    PERSON = "person"
    TIME = "time"
    CONTACT = "contact"
    NRP = "nrp"
    URL = "url"
    ID = "id"
