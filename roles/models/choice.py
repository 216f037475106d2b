"""Which files of a model are fetched: those that rack.yaml chooses, else all but weights in further formats. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from core.model.errors import counted, truncate
from core.model.model_lock import path_fault

INDEX = re.compile(r"(?:[^/]+/)*[^/]+\.(safetensors|bin)\.index\.json")
"""An index: it names the files that together are the weights."""
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pth|gguf|ckpt|h5|msgpack|ot|onnx|onnx_data|tflite|mlmodel|nemo)")
"""Files of weights, in the formats of all frameworks."""
_PICTURES = re.compile(r".*\.(png|jpe?g|gif|webp|svg|mp4|mov|webm|pdf)", re.IGNORECASE)
"""Files that explain a model to people."""
_PART = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")
_BESIDE_GGUF = re.compile(r"(.*[^a-z])?(mmproj|imatrix)([^a-z].*)?", re.IGNORECASE)
"""Names of GGUF files that belong to a model, and are not one."""
Indexes = Mapping[str, Collection[str] | None]
"""The names in each index of a model by its path, as they stand there; None for one that cannot be read."""


def chosen(patterns: Collection[str] | None, listed: Collection[str], indexes: Indexes) -> list[str]:
    """Return the paths of the files to fetch, in their order.

    Args:
        patterns: those of rack.yaml, None without any.
        listed: the paths of all files that there are.
        indexes: of all files of the form of INDEX.

    Raises:
        ValueError: no choice can be made, or it is not whole. The text is a clause and what to do.
    """
    if patterns is None:
        taken = _choose_default_files(listed, indexes)
    else:
        for pattern in patterns:
            if not any(_match_pattern(path, pattern) for path in listed):
                raise ValueError(f"files: {truncate(pattern)} is the pattern of no file; correct it, or remove it")
        taken = {path for path in listed if any(_match_pattern(path, pattern) for pattern in patterns)}
    for index in sorted(taken & indexes.keys()):
        for path in _list_indexed_files(index, indexes):
            if path not in listed:
                raise ValueError(
                    f"{truncate(index)} names {truncate(path)}, which is not there; fetch another revision, or choose "
                    "files without this index"
                )
            if path not in taken:
                raise ValueError(f"files: leaves out {truncate(path)}, which {truncate(index)} names; add it")
    return [path for path in listed if path in taken]


def _match_pattern(path: str, pattern: str) -> bool:
    """Whether a path has the form of a pattern, as the hub's own client reads it: a * is also a /."""
    return fnmatchcase(path, f"{pattern}*" if pattern.endswith("/") else pattern)


def _list_indexed_files(index: str, indexes: Indexes) -> list[str]:
    """Return the paths that an index names. Raises ValueError."""
    names = indexes[index]
    paths = [posixpath.join(posixpath.dirname(index), name) for name in names or ()]
    if not paths or any(path_fault(path) for path in paths):
        raise ValueError(f"{truncate(index)} is not an index of weights; choose files without it")
    return sorted(paths)


def _choose_default_files(listed: Collection[str], indexes: Indexes) -> set[str]:
    """Return all files but pictures and the weights in other forms than that which engines load first."""
    weights = {path for path in listed if _WEIGHTS.fullmatch(path)}
    rest = {path for path in listed if path not in weights and not _PICTURES.fullmatch(path)}
    top = {path for path in weights if "/" not in path}
    if first := _first_format(top, indexes):
        return rest - indexes.keys() | first
    if gguf := {path for path in weights if path.endswith(".gguf")}:
        _require_single_gguf(gguf)
        return rest | gguf
    # Weights in folders are those of several parts of a model, and none is left out.
    return rest | (top or weights)


def _first_format(top: Collection[str], indexes: Indexes) -> set[str]:
    """Return the weights, of those in the folder of the model itself, in the form that engines load first; their index
    is one of them."""
    for ending in (".safetensors", ".bin"):
        for consolidated in (False, True):
            own, found = (
                {
                    path
                    for path in paths
                    if path.endswith(form) and path.startswith("consolidated") == consolidated and "/" not in path
                }
                for paths, form in ((top, ending), (indexes, f"{ending}.index.json"))
            )
            # Some add the same weights in other precisions, each with an index of its own.
            usual = found & {f"model{ending}.index.json", f"pytorch_model{ending}.index.json"}
            if index := min(usual or found, default=None):
                return {index, *_list_indexed_files(index, indexes)}
            if own:
                return own
    return set()


def _require_single_gguf(gguf: Collection[str]) -> None:
    """Raise ValueError where GGUF files are those of more than one model."""
    models = {_PART.sub("", path) for path in gguf if not _BESIDE_GGUF.fullmatch(posixpath.basename(path))}
    if len(models) > 1:
        some = ", ".join(map(truncate, sorted(models)[:3]))
        what = f"has {counted(len(models), 'model')} in GGUF files ({some}{', ...' if len(models) > 3 else ''})"
        raise ValueError(f'{what}; choose one at files, like files: ["*.json", "{truncate(min(models))}"]')
