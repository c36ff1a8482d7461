"""What each result name is called in a report, and which way is better."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """How a report speaks of one result name.

    Args:
        name: Name of the result.
        title: Head of its column.
        meaning: One sentence for the reader; empty where the title says it all.
    """

    name: str
    title: str
    meaning: str = ""


POLICY_QUANTITIES = (
    Quantity("accuracy", "Accuracy", "share of questions answered right"),
    Quantity("kept_tokens", "Kept tokens", "visual tokens that leave the client, mean per image"),
    Quantity(
        "sensitivity_exclusion_ratio",
        "SER",
        "mean sensitivity of dropped over kept patches, mean over images; above 1 sensitive "
        "patches go first. No evidence of privacy by itself",
    ),
    Quantity("sensitivity_exclusion_ratio_pooled", "SER, pooled", "the same over all patches"),
    Quantity(
        "sensitive_tokens_kept",
        "Sensitive tokens surviving",
        "share of the tokens on a face that still leave the client; lower is safer",
    ),
    Quantity("bytes_up", "Bytes up", "activations a sample sends across the cut"),
    Quantity("bytes_down", "Bytes down", "gradients a sample gets back"),
)

ATTACK_QUANTITIES = (
    Quantity(
        "attack/fora/psnr_sensitive", "PSNR in the face box", "higher: the attacker sees more"
    ),
    Quantity(
        "attack/fora/floor_mean_face", "Floor: mean face", "what painting an average face gives"
    ),
    Quantity("attack/fora/psnr", "PSNR, whole image"),
    Quantity("attack/fora/floor_mean_image", "Floor: mean image"),
    Quantity("attack/fora/psnr_kept", "PSNR, kept patches"),
    Quantity("attack/fora/psnr_dropped", "PSNR, dropped patches"),
    Quantity("attack/fora/ssim_sensitive", "SSIM in the face box"),
    Quantity("attack/fora/ssim", "SSIM, whole image"),
    Quantity("attack/fora/reid_top1", "Re-identified, top 1", "face found first in the gallery"),
    Quantity("attack/fora/reid_top5", "Re-identified, top 5", "face among the first five"),
    Quantity("attack/membership/auc", "AUC", "0.5 is guessing, 1 is certainty"),
    Quantity("attack/membership/blind_auc", "Baseline: blind AUC", "the data alone, no model"),
    Quantity("attack/membership/tpr_at_1_fpr", "TPR at 1 % FPR", "members named with 1 % error"),
    Quantity(
        "attack/membership/balanced_accuracy",
        "Balanced accuracy",
        "threshold fixed on shadow models",
    ),
)

_BY_NAME = {each.name: each for each in (*POLICY_QUANTITIES, *ATTACK_QUANTITIES)}
_ORDER = {name: place for place, name in enumerate(_BY_NAME)}


def quantity(name: str) -> Quantity:
    """Return how to speak of a result name, made from the name itself where it is new.

    >>> quantity("attack/idlg/label_recovery").title
    'Label recovery'
    """
    return _BY_NAME.get(name) or Quantity(
        name, name.rpartition("/")[2].replace("_", " ").capitalize()
    )


def reading_order(name: str) -> tuple[int, str]:
    """Return the key that sorts result names for a reader: the known ones first."""
    return _ORDER.get(name, len(_ORDER)), name


_ATTACKS = {
    "fora": "Image reconstruction (FORA)",
    "membership": "Membership inference",
}


def attack_title(attack: str) -> str:
    """Return the name of an attack for a heading.

    >>> attack_title("fora"), attack_title("gradient_inversion")
    ('Image reconstruction (FORA)', 'Gradient inversion')
    """
    return _ATTACKS.get(attack, attack.replace("_", " ").capitalize())
