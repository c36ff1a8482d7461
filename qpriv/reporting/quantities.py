"""What each result name is called in a report, and which way is better."""

from dataclasses import dataclass

from .recovered import HIJACKERS, WEAKER


@dataclass(frozen=True)
class Quantity:
    """How a report speaks of one result name.

    Args:
        name: Name of the result.
        title: Head of its column.
        meaning: One sentence for the reader; empty where the title says it all.
        leading: Whether it stands in an attack's main table.
    """

    name: str
    title: str
    meaning: str = ""
    leading: bool = True


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

PARADIGM_QUANTITIES = (
    Quantity("accuracy", "Accuracy", "share of questions answered right"),
    Quantity("bytes_up", "Bytes up", "what a training sample sends to the server"),
    Quantity("bytes_down", "Bytes down", "what a training sample gets back"),
    Quantity("bytes_padding", "Of them padding", "what only hides how many tokens were kept"),
    Quantity("bytes_epoch", "Bytes an epoch", "up and down together, over all training samples"),
    Quantity("train_seconds", "Seconds an epoch", "training steps alone, all parties together"),
    Quantity(
        "train_cpu_seconds", "CPU seconds an epoch", "the same of all cores, also when shared"
    ),
)

ATTACK_QUANTITIES = (
    Quantity("attack/fora/psnr_sensitive", "PSNR in the face box, dB", "higher: more is seen"),
    Quantity("attack/fora/floor_mean_face", "Floor: mean face, dB", "what an average face gives"),
    Quantity("attack/fora/gain_over_mean_face", "Gain over the mean face, dB", "paired by image"),
    Quantity("attack/fora/psnr", "PSNR, whole image, dB"),
    Quantity("attack/fora/floor_mean_image", "Floor: mean image, dB"),
    Quantity("attack/fora/reid_top1", "Re-identified, top 1", "face found first in the gallery"),
    Quantity("attack/fora/reid_top5", "Re-identified, top 5", "face among the first five"),
    Quantity(
        "attack/fora/reid_top1_gone", "Top 1, face gone", "where no patch on the face crossed"
    ),
    Quantity(
        "attack/fora/residual_gain",
        "Residual leak, dB",
        "dropped patches: gain over painting them from the true colours of the kept ones",
    ),
    Quantity("attack/fora/psnr_kept", "PSNR, kept patches, dB", leading=False),
    Quantity("attack/fora/psnr_dropped", "PSNR, dropped patches, dB", leading=False),
    Quantity("attack/fora/ssim_sensitive", "SSIM in the face box", leading=False),
    Quantity("attack/fora/ssim", "SSIM, whole image", leading=False),
    *(
        each
        for attack in WEAKER
        for each in (
            Quantity(f"attack/{attack}/psnr_sensitive", "PSNR in the face box, dB"),
            Quantity(
                f"attack/{attack}/recovered_share_sensitive",
                "Recovered share",
                "of the way from the mean face to what training through the true client gives",
            ),
            Quantity(f"attack/{attack}/floor_mean_face", "Floor: mean face, dB"),
            Quantity(f"attack/{attack}/psnr", "PSNR, whole image, dB"),
            Quantity(f"attack/{attack}/recovered_share", "Recovered share, whole image"),
            Quantity(f"attack/{attack}/reid_top1", "Re-identified, top 1"),
        )
    ),
    *(
        each
        for attack in HIJACKERS
        for each in (
            Quantity(f"attack/{attack}/task_accuracy", "Accuracy of the hijacked twin"),
            Quantity(f"attack/{attack}/task_accuracy_honest", "Accuracy of the honest victim"),
            Quantity(
                f"attack/{attack}/splitguard_score",
                "SplitGuard's score",
                "near 1 for an honest server",
            ),
        )
    ),
    Quantity("attack/membership/auc", "AUC, shadow models", "0.5 is guessing, 1 is certainty"),
    Quantity("attack/membership/blind_auc", "Baseline: blind AUC", "the data alone, no model"),
    Quantity("attack/membership/loss_auc", "AUC, loss threshold"),
    Quantity("attack/membership/calibrated_auc", "AUC, calibrated loss"),
    Quantity("attack/membership/tpr_at_1_fpr", "TPR at 1 % FPR", "members named at 1 % error"),
    Quantity(
        "attack/membership/balanced_accuracy",
        "Balanced accuracy",
        "threshold fixed on shadow models",
    ),
)

_LOSSES = (Quantity("val/loss", "Validation loss"), Quantity("train/loss", "Training loss"))

_BY_NAME = {
    each.name: each
    for each in (*PARADIGM_QUANTITIES, *POLICY_QUANTITIES, *ATTACK_QUANTITIES, *_LOSSES)
}
_ORDER = {name: place for place, name in enumerate(_BY_NAME)}


def quantity(name: str) -> Quantity:
    """Return how to speak of a result name, made from the name itself where it is new.

    A figure nobody wrote of here stands in no main table, but in the one of all the others.

    >>> quantity("attack/idlg/label_recovery").title
    'Label recovery'
    """
    title = name.rpartition("/")[2].replace("_", " ").capitalize()
    return _BY_NAME.get(name) or Quantity(name, title, leading=False)


def reading_order(name: str) -> tuple[int, str]:
    """Return the key that sorts result names for a reader: the known ones first."""
    return _ORDER.get(name, len(_ORDER)), name


_ATTACKS = {
    "attributes": "Attribute inference",
    "fora": "Image reconstruction (FORA)",
    "fora_substitute": "Image reconstruction (FORA, substitute client)",
    "fsha": "Feature-space hijacking (FSHA)",
    "fsha_control": "Feature-space hijacking (control: the honest gradient is returned)",
    "fsha_convolution": "Feature-space hijacking (FSHA, published pilot)",
    "gradient": "Gradient inversion (DLG, iDLG)",
    "membership": "Membership inference",
    "sdar": "Image reconstruction (SDAR)",
    "side_channel": "Side channel: counts and sizes alone",
}


def attack_title(attack: str) -> str:
    """Return the name of an attack for a heading.

    >>> attack_title("fora"), attack_title("gradient_inversion")
    ('Image reconstruction (FORA)', 'Gradient inversion')
    """
    return _ATTACKS.get(attack, attack.replace("_", " ").capitalize())
