"""Every module can be imported where the operating system is not a Unix."""

import json
import subprocess
import sys

# the libraries have their own ways on other systems: they are loaded before anything is hidden
CODE = """
import importlib, json, os, pkgutil, signal, sys

PACKAGES = ("qpriv", "lightning_modules", "callbacks", "datamodules", "cli")
HIDDEN = ("fcntl", "pwd", "resource")


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def failures():
    found = {}
    for package in PACKAGES:
        folder = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folder, f"{package}."):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                found[module.name] = repr(error)
    return found


before = failures()
own = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
for name in (*own, *HIDDEN):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for module, name in ((os, "getuid"), (signal, "SIGKILL")):
    if hasattr(module, name):
        delattr(module, name)
print(json.dumps({"modules": len(own), "before": before, "hidden": failures()}))
"""
NEED_AN_EXTRA = {"cli.flower", "qpriv.remote.flower"}


def test_no_module_needs_what_only_unix_has():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["modules"] > 300
    assert set(told["before"]) <= NEED_AN_EXTRA, told["before"]
    assert told["hidden"] == told["before"]
