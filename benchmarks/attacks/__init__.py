"""Every attack beside a plain loop: ``python -m benchmarks.attacks``."""
