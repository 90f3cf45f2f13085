"""What a user's type checker must accept, and what it must not; see ``.ci/types``.

It is checked and never run. A wrong line that is accepted makes its comment an unused
one, which is an error too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import molecule
from dp_calc.models import InputSpec, ModelSource, Potential
from typing_extensions import assert_type

from dp_calc import DP, Settings, __version__, evaluate, load_model
from dp_calc.data import water_model

assert_type(__version__, str)

model = load_model("model.pt", device="cpu", dtype="float64")
assert_type(model, Potential)
assert_type(model.type_map, tuple[str, ...])
assert_type(model.rcut, float)
assert_type(model.dtype, torch.dtype)
assert_type(model.device, torch.device)
assert_type(model.inputs, tuple[InputSpec, ...])
assert_type(model.source, ModelSource)

calc = DP(Path("model.pt"), type_dict={"H": 0}, head=None, backward="native")
DP(model)
DP([water_model(), model], head=["one", "two"], device=torch.device("cpu"))
assert_type(calc.type_map, list[str])
assert_type(calc.rcut, float)
assert_type(calc.device, torch.device)
assert_type(calc.model, Potential)
assert_type(calc.settings, Settings)
assert_type(calc.settings.describe(calc.model), str)
assert_type(calc.timings, dict[str, float])
assert_type(calc.todict(), dict[str, Any])

water: Atoms = molecule("H2O")
water.calc = calc
calc.calculate(water, properties=("energy", "stress"))
hessian: np.ndarray = calc.get_hessian(water, progress=False)
descriptors: np.ndarray = calc.get_descriptors(water)

results = evaluate([water], calc, properties=["energy"], max_edges=1000, progress=False)
assert_type(results, list[dict[str, Any]])
evaluate((structure for structure in [water]), [water_model(), water_model()])

DP(3)  # type: ignore[arg-type]
DP("model.pt", device=0)  # type: ignore[arg-type]
DP("model.pt", "label", None, None, None, "auto", "cpu")  # type: ignore[call-arg]
Settings(skim=1.0)  # type: ignore[call-arg]
Settings(backward=True)  # type: ignore[arg-type]
load_model(None)  # type: ignore[arg-type]
evaluate([water], calc, ["energy"])  # type: ignore[call-arg]
evaluate([1], calc)  # type: ignore[list-item]
calc.get_hessian("H2O")  # type: ignore[arg-type]
calc.settings.skin = 2.0  # type: ignore[misc]
