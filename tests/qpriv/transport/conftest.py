from pathlib import Path

import pytest

from qpriv.transport.certificates import make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, a server and two clients."""
    folder: Path = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, clients=2)
    return folder
