"""The targets for a deploy by stock operations, written in the usual way, from the file that BENCH_HOSTS names."""

import json as _json
import os as _os
from pathlib import Path as _Path

_work = _Path(_os.environ["BENCH_WORK"])
nodes = [
    (
        name,
        {
            **data,
            "ssh_hostname": data["address"],
            "ssh_user": "ops",
            "ssh_key": str(_work / "id_ed25519"),
            "ssh_known_hosts_file": str(_work / "known_hosts"),
            "contents": str(_work / "files" / name),
        },
    )
    for name, data in _json.loads((_work / "hosts.json").read_text()).items()
]
