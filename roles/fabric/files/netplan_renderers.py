"""Prints `path:renderer: NAME` for each netplan file that sets the renderer of all interfaces, and nothing else of it:
the files of others may hold secrets. netplan itself needs python3-yaml. A file that is not YAML sets none.
"""

import sys
from pathlib import Path

import yaml

for path in sys.argv[1:]:
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, yaml.YAMLError):
        continue
    network = found.get("network") if isinstance(found, dict) else None
    renderer = network.get("renderer") if isinstance(network, dict) else None
    if isinstance(renderer, str) and renderer.isalpha():
        print(f"{path}:renderer: {renderer}")
