"""From the tensor names of a checkpoint to the names of the model's parameters."""

import re

from torch import Tensor, nn

from ..state import assign_tensors, first_match

__all__ = ["load_state"]

_DESCRIPTOR = r"^atomic_model\.descriptor\."
_FITTING = r"^atomic_model\.fitting_net\."

# Index tables and constants that follow from the options and are rebuilt (some of them
# only older files have), buffers of training statistics, and the version, which the
# configuration has read.
_NOT_NEEDED = re.compile(
    r"^min_nbor_dist$|^atomic_model\.(out_std|dens_force_rmsd)$|"
    + _DESCRIPTOR
    + r"(version_tensor|mean|stddev|_empty_tensor|"
    r"(wigner_calc|gie_zonal_wigner_calc|gie)\..*|"
    r".*\.(expand_index|coeff_index_m|degree_index_(m|full)|m0_idx|(pos|neg)_indices|"
    r"kernel_(compact|dense)_index|rotate_inv_rescale_full|"
    r"projector\.(to|from)_grid_mat))$"
)

_RENAMED = [
    (r"^atomic_model\.out_bias$", "out_bias"),
    (_FITTING + "bias_atom_e$", "fitting_bias"),
    (_FITTING + "(case_embd|default_fparam_tensor|[fa]param_.*)$", r"fitting.inputs.\1"),
    (_FITTING + r"filter_layers\.networks\.0\.hidden_layers\.(\d+)\.linear\.",
     r"fitting.hidden_layers.\1."),
    (_FITTING + r"filter_layers\.networks\.0\.", "fitting."),
    (_DESCRIPTOR + r"film_(scale|shift)_norm\.adam_scale$",
     r"descriptor.initial.film.\1_gain"),
    (_DESCRIPTOR + "film_(scale|shift)_strength_log$",
     r"descriptor.initial.film.\1_strength_log"),
    (_DESCRIPTOR + r"final_(full|block)_attn_res\.", "descriptor.final_attn_res."),
    (_DESCRIPTOR + r"(env_seed_embedding|spin_embedding)\.", r"descriptor.initial.\1."),
    (_DESCRIPTOR, "descriptor."),
]  # fmt: skip

# Inside a block.
_RENAMED_IN_BLOCK = [
    (r"^(full|block)_attn_res_", "attn_res_"),
    (r"^so2_conv\.radial_degree_mixer\.", "so2_conv.path.mixer."),
    (r"^so2_conv\.node_wise_grid_product\.", "so2_conv.path.node_wise.inner."),
    (r"^so2_conv\.message_node_grid_product\.", "so2_conv.message_node."),
    (r"^so2_conv\.edge_cartesian_tp\.", "so2_conv.path.stack."),
    (r"^so2_conv\.node_cartesian_tp\.", "so2_conv.node_cartesian.stack."),
    (r"^so2_conv\.(non_linearities\.\d+)\.scalar_gate\.",
     r"so2_conv.path.stack.\1.inner.scalar_gate."),
    (r"^so2_conv\.(so2_linears|non_linearities|so2_inter_norms|so2_layer_attn_res|"
     r"adam_so2_layer_scales)\.", r"so2_conv.path.stack.\1."),
    (r"^so2_conv\.(attn_(focus_mix|v_proj|o_proj))\.", r"so2_conv.attention_maps.\1."),
    (r"^so2_conv\.((adamw_)?attn_)", r"so2_conv.attention.\1"),
    (r"^so2_conv\.((adamw_)?focus_compete_)", r"so2_conv.competition.\1"),
]  # fmt: skip

# The operation of a grid network is part of its product here.
_GRID_OPERATION = (r"\.grid_op\.", ".product.grid_op.")
_BLOCK = re.compile(r"^(descriptor\.blocks\.\d+\.)(.*)$")


def load_state(model: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Give every parameter and stored buffer of ``model`` its tensor.

    Args:
        model: a model whose parameters have no storage yet.
        tensors: the branch's tensors by their names in the file.
        source: what to call the file in an error.

    Raises:
        ValueError: a tensor is missing, unknown, of another shape, or not finite.
    """
    given = {k: v for k, v in tensors.items() if not _NOT_NEEDED.match(k)}
    assign_tensors(model, given, _rename, source)


def _rename(key: str) -> str:
    key = re.sub(*_GRID_OPERATION, first_match(key, _RENAMED))
    block = _BLOCK.match(key)
    if block is None:
        return key
    return block[1] + first_match(block[2], _RENAMED_IN_BLOCK)
