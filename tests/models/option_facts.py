"""Which reference files contain which of the option values in ``values.txt``.

Run as a script this prints what ``tests/data/options/COVERAGE.md`` holds.
"""

from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import DATA

FOLDER = DATA / "options"
COVERAGE = FOLDER / "COVERAGE.md"


def rows() -> list[tuple[str, str, str]]:
    """Option, value and condition of each row."""
    lines = (FOLDER / "values.txt").read_text().splitlines()
    split = [line.split("|") for line in lines if not line.startswith("#")]
    return [(option.strip(), value.strip(), how.strip()) for option, value, how in split]


def contains(facts: dict[str, Any], option: str, value: str, how: str) -> bool:
    """Whether a file contains an option value where it takes part."""
    if how:
        return bool(eval(how, {}, facts))  # the table is part of this test
    try:
        wanted = literal_eval(value)
    except (ValueError, SyntaxError):
        wanted = value
    return facts.get(option) == wanted


def facts_of(
    params: dict[str, Any], version: float | None, inputs: set[str]
) -> dict[str, Any]:
    """The names that conditions use: descriptor options and what follows from them.

    Args:
        params: options of the model as stored.
        version: stored version of the descriptor.
        inputs: further inputs that the references were made with.
    """
    composed = "models" in params
    learned = next(x for x in params.get("models", [params]) if "descriptor" in x)
    d, f = learned["descriptor"], learned["fitting_net"]
    return {
        **{"so2_layers": None, "m": params, "d": d, "f": f, "inputs": inputs},
        **d,
        "version": version,
        "composed": composed,
        **_of_blocks(d),
        **_of_grids(d),
        **_of_model(params, f, inputs, composed),
    }


def _of_blocks(d: dict[str, Any]) -> dict[str, Any]:
    degrees, orders = _schedule(d)
    layers = d.get("so2_layers", d.get("mixing_layers"))
    cartesian = {l for l in degrees if d["edge_cartesian"] and l in (1, 2)}
    rotates = bool(
        layers
        or d["radial_so2_mode"] != "none"
        or (not cartesian and (d["node_wise_s2"] or d["node_wise_so3"]))
    )
    others = [(l, m) for l, m in zip(degrees, orders, strict=True) if l not in cartesian]
    first = degrees[0] if degrees else d["lmax"]
    # After a last block without grid products a scalar read-out sees no row l > 0.
    mixes = d["s2_activation"][1] or d["ffn_so3_grid"] or d["so3_readout"] != "none"
    rows_seen = mixes or len(degrees) > 1
    seen = rows_seen or first == 0
    # Frames of degree or order zero are trivial, and so are those of a first block whose
    # atoms have scalars only.
    filled = d["use_env_seed"] or len(degrees) > 1
    turned = [(l, m) for l, m in others if rotates and seen and filled and l > 0]
    frames = any(m > 0 for _, m in turned)
    lowest = min(degrees, default=-1)
    inner = frames and layers > 1
    return {
        "degrees": degrees,
        "orders": orders,
        "layers": layers,
        "blocks": len(degrees),
        "lowest": lowest,
        "falling": len(set(degrees)) > 1,
        "node_degree": first + d["extra_node_l"],
        "lowest_node": lowest + d["extra_node_l"],
        "rows_seen": first + d["extra_node_l"] > 0 and rows_seen,
        "cartesian": cartesian if seen else set(),
        "frames": frames,
        "direct": not rotates and seen and any(l > 0 for l, _ in others),
        "inner": inner,
        "cut_orders": {m for l, m in turned if m < l},
        "grid_in_stack": inner and d["s2_activation"][0],
        "rank": d["radial_so2_rank"] if frames and _is_mixed(d) else None,
        "attends": bool(degrees) and d["n_atten_head"] > 0,
        "node_layers": _node_layers(d["node_cartesian"]) if {1, 2} & set(degrees) else 0,
        "exact_rcut": float(np.float32(d["rcut"])) == d["rcut"],
        "another_activation": d["activation_function"] != "silu",
        "extra_readout": d["extra_node_l"] > 0 and d["so3_readout"] != "none",
        "auto_readout": d["so3_readout"] != "none" and _automatic_width_shows(d),
        "auto_gated": _automatic_width_shows(d) and len(degrees) > 0,
    }


def _schedule(d: dict[str, Any]) -> tuple[list[int], list[int]]:
    degrees, orders = d["l_schedule"], d["m_schedule"]
    if degrees is None:
        degrees = [d["lmax"]] * d["n_blocks"]
    if orders is None:
        orders = [l if d["mmax"] is None else min(d["mmax"], l) for l in degrees]
    return degrees, orders


def _automatic_width_shows(d: dict[str, Any]) -> bool:
    """Whether the automatic widths with and without GLU are not the same."""
    with_glu, without = -(-8 * d["channels"] // 96), -(-4 * d["channels"] // 32)
    return d["ffn_neurons"] == 0 and with_glu != without


def _is_mixed(d: dict[str, Any]) -> bool:
    return d["radial_so2_mode"] == "degree_channel"


def _node_layers(value: Any) -> int:
    named = {"": 0, "none": 0, "default": 1, "parity": 1}
    text = str(value).lower()
    return named[text] if text in named else int(text.rpartition(":")[2])


def _of_grids(d: dict[str, Any]) -> dict[str, Any]:
    """Kind and operation of the three products, (None, None) for none of it."""
    degrees, _ = _schedule(d)
    kinds = [
        (d["node_wise_s2"], d["node_wise_so3"]),
        (d["message_node_s2"], d["message_node_so3"]),
        (d["s2_activation"][1], d["ffn_so3_grid"]),
    ]
    branches, mlps = (
        v if isinstance(v, list) else [v] * 3 for v in (d["grid_branch"], d["grid_mlp"])
    )
    products = []
    for (on_s2, on_so3), branch, mlp in zip(kinds, branches, mlps, strict=True):
        kind = "so3" if on_so3 else "s2" if on_s2 else None
        operation = branch or ("mlp" if mlp else "glu")
        active = max(degrees, default=0) > 0 and kind is not None
        products.append((kind, operation) if active else (None, None))
    lebedev = d["lebedev_quadrature"]
    lebedev = lebedev if isinstance(lebedev, list) else [lebedev] * 2
    return {
        "node_wise": products[0],
        "message_node": products[1],
        "ffn": products[2],
        "gated_ffn": bool(degrees) and not any(kinds[2]),
        "so3_in_blocks": "so3" in {kind for kind, _ in products},
        "product_grid": [flag is False for flag in lebedev],
    }


def _of_model(
    params: dict[str, Any], f: dict[str, Any], inputs: set[str], composed: bool
) -> dict[str, Any]:
    spin = params.get("spin") or {}
    inner, outer = params.get("bridging_r_inner"), params.get("bridging_r_outer")
    return {
        "charged": "charge_spin" in inputs,
        "native": spin.get("scheme") == "native",
        "spin_types": spin.get("use_spin"),
        "excluded_pairs": bool(params.get("pair_exclude_types")),
        "excluded_atoms": bool(params.get("atom_exclude_types")),
        "bridged": composed or str(params.get("bridging_method")).lower() == "zbl",
        "radii": (inner, outer),
        "neuron": f.get("neuron", f.get("n_neuron")),
        "cases": f["dim_case_embd"] > 0,
    }


def facts_of_file(path: Path) -> dict[str, Any] | None:
    """What a checkpoint with references beside it contains; None if it is no DPA4."""
    state = torch.load(path, weights_only=True)["model"]
    params = state["_extra_state"]["model_params"]
    learned = params.get("models", [params])[0]
    if str(learned.get("descriptor", {}).get("type")).lower() not in ("dpa4", "sezm"):
        return None
    version = [v.item() for k, v in state.items() if k.endswith("version_tensor")]
    with np.load(path.with_suffix(".ref.npz")) as stored:
        inputs = {name.rpartition("/")[2] for name in stored.files}
    return facts_of(params, version[0] if version else None, inputs)


def coverage() -> dict[tuple[str, str], list[str]]:
    """Names of the files that contain each option value, in the order of the table."""
    paths = [*sorted(FOLDER.glob("*.pt")), *sorted(DATA.glob("*.pt"))]
    paths = [p for p in paths if p.with_suffix(".ref.npz").exists()]
    files = {p.stem: facts_of_file(p) for p in paths}
    files = {name: facts for name, facts in files.items() if facts is not None}
    return {
        (option, value): [n for n, x in files.items() if contains(x, option, value, how)]
        for option, value, how in rows()
    }


HEADER = """# Option values and the reference files that contain them

`python tests/models/option_facts.py` prints this page; a test keeps it current.
`values.txt` says where a value counts. Legal values that are refused in one sentence, by
`tests/models/test_option_refusals.py`: `precision` of 16 bits; `eps` above 1e-6;
`lebedev_quadrature` False with orders of four and more in `s2_activation[0]` or
`node_wise_s2`; before version 1.1 activations that are not zero at zero.

| option | value | files |
|---|---|---|
"""


def render(most: int = 3) -> str:
    """The coverage as a Markdown table."""
    lines = []
    for (option, value), names in coverage().items():
        others = ", ..." if len(names) > most else ""
        lines.append(f"| {option} | {value} | {', '.join(names[:most])}{others} |")
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
