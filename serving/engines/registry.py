"""All engines, by their names in rack.yaml: each folder beside this file declares its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

import serving.engines
from serving.engines.engine import ServingEngine


def _find_engines() -> Mapping[str, ServingEngine]:
    names = sorted(one.name for one in pkgutil.iter_modules(serving.engines.__path__) if one.ispkg)
    folders = [importlib.import_module(f"serving.engines.{name}") for name in names]
    return {engine.name: engine for folder in folders for engine in folder.ENGINES}


ENGINES: Mapping[str, ServingEngine] = _find_engines()
FAMILIES: Mapping[str, ServingEngine] = {
    engine.family: engine for engine in ENGINES.values() if engine.name == engine.family
}
"""The engines that have options of their own."""
