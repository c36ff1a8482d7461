"""The science of qpriv in plain torch: it knows no trainer and no logger."""

from .moved import install

install()
