"""Run every benchmark that needs no arguments; print one JSON object per line.

Each benchmark is a module of this folder with `main() -> dict`, and runs alone as
`python -m tests.bench.<name>`.
"""

import importlib
import json
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    for path in sorted(HERE.glob("[a-z]*.py")):
        module = importlib.import_module(f"tests.bench.{path.stem}")
        if getattr(module, "STANDALONE", False):
            print(json.dumps({"bench": path.stem} | module.main()), flush=True)


main()
