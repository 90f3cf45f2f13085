"""Inputs of the fitting net beside the descriptor: parameters and the branch."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..inputs import InputSpec
from .config import FittingConfig

__all__ = ["FittingInputs"]


class FittingInputs(nn.Module):
    """Normalised frame and atomic parameters, and the one-hot vector of the branch."""

    def __init__(self, config: FittingConfig):
        super().__init__()
        self.config = config
        self.fparam_avg, self.fparam_inv_std = _statistics(config.numb_fparam)
        self.aparam_avg, self.aparam_inv_std = _statistics(config.numb_aparam)
        default = config.numb_fparam if config.default_fparam else 0
        self.default_fparam_tensor = _stored(default)
        self.case_embd = _stored(config.n_cases)

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        """The inputs that a caller may or must give."""
        c = self.config
        specs = []
        if c.numb_fparam:
            specs.append(InputSpec("fparam", c.numb_fparam, False, not c.default_fparam))
        if c.numb_aparam and not c.aparam_is_mask:
            specs.append(InputSpec("aparam", c.numb_aparam, per_atom=True))
        return tuple(specs)

    def forward(self, n_atoms: int, conditions: Mapping[str, Tensor]) -> Tensor | None:
        """Columns [fparam | aparam | branch], (N, n_extra); None without any."""
        columns = []
        for spec in self.specs:
            value = conditions.get(spec.name)
            if value is None:
                value = self._default(spec)
            average = getattr(self, f"{spec.name}_avg")
            scaled = (value.to(average) - average) * getattr(self, f"{spec.name}_inv_std")
            columns.append(scaled.expand(n_atoms, -1))
        if self.config.n_cases and not self.config.case_film:
            columns.append(self.case_embd.expand(n_atoms, -1))
        return torch.cat(columns, dim=1) if columns else None

    def _default(self, spec: InputSpec) -> Tensor:
        if spec.required:
            raise ValueError(f"this model needs {spec.name}, {spec.width} values")
        return self.default_fparam_tensor


def _statistics(width: int) -> tuple[nn.Buffer | None, nn.Buffer | None]:
    return _stored(width), _stored(width)


def _stored(width: int) -> nn.Buffer | None:
    return nn.Buffer(torch.empty(width, device="meta")) if width else None
