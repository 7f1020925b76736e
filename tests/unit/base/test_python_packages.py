"""Which distribution an import needs."""

import pytest

from gangline.base.python_packages import distribution_of


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("torch", "torch"),
        ("torch.distributed", "torch"),
        ("sklearn.linear_model", "scikit-learn"),
        ("cv2", "opencv-python"),
        ("PIL.Image", "pillow"),
        ("google.protobuf.message", "protobuf"),
    ],
)
def test_an_import_is_installed_by_its_distribution(module: str, distribution: str) -> None:
    assert distribution_of(module) == distribution
