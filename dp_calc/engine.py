"""One evaluation of a model, run as the settings say."""

import warnings
from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from .arithmetic import rounded_products
from .backward import Backward, choose_backward
from .compiled_model import CompileError, make_compiled
from .evaluation import Outputs, evaluate_model
from .fusing import with_fused_edges
from .graphs import RecordingError
from .memory import explain_out_of_memory
from .models import EdgeList
from .recorded_model import make_recorded
from .settings import Settings

__all__ = ["Engine", "Outputs"]


class Engine:
    """Runs a model as its settings say.

    Args:
        model: gives atomic energies from types, edges and conditions.
        settings: how to run it.

    Attributes:
        backward: what was kept for the backward pass of the last structure, and why.
        compiled: the compiled model, where there is one.
        recorded: the model that keeps all activations, where there is one.

    Raises:
        ValueError: the model cannot be run as the settings say.
    """

    def __init__(self, model: nn.Module, settings: Settings):
        if settings.precision == "tf32" and model.device.type != "cuda":
            raise ValueError(
                f'precision="tf32" cannot be had: the model is on {model.device}, and '
                "only CUDA devices have it; leave it out"
            )
        self.model = model
        self.settings = settings
        self.backward: Backward | None = None
        self._fused = with_fused_edges(model, settings)
        self.compiled = make_compiled(self._fused, settings)
        self.recorded = make_recorded(self._fused, settings)

    def evaluate(
        self,
        types: Tensor,
        edges: EdgeList,
        conditions: Mapping[str, Tensor] | None = None,
    ) -> Outputs:
        """Compute energies, forces and virials.

        Args:
            types: index into the model's ``type_map``, (N,), int64, on its device.
            edges: all pairs within the model's cutoff, on its device.
            conditions: further inputs of the model by name, on its device.

        Raises:
            FloatingPointError: a result is infinite or not a number.
            OutOfMemoryError: it does not fit; the message says what would.
        """
        self.backward = self._choose(edges)
        rounding = nullcontext()
        if self.settings.precision == "tf32":
            rounding = rounded_products(self.model.device, "tf32")
        with rounding, explain_out_of_memory(self.model, edges, self.backward):
            outputs = self._outputs(types, edges, conditions or {})
        _refuse_non_finite(outputs, self.model, types)
        return outputs

    def _outputs(
        self, types: Tensor, edges: EdgeList, conditions: Mapping[str, Tensor]
    ) -> Outputs:
        if self.backward.by == "compiled":
            try:
                return self.compiled.evaluate(types, edges, conditions)
            except CompileError as error:
                self._give_up_compiling(error)
                self.backward = self._choose(edges)
        if self.backward.by == "recorded":
            try:
                return self.recorded.evaluate(types, edges, conditions)
            except RecordingError as error:
                self.recorded = None
                warnings.warn(f"{error}; they go on without", stacklevel=2)
                self.backward = self._choose(edges)
                return self._outputs(types, edges, conditions)
        executor = self.backward.executor(self._fused, self.settings)
        return evaluate_model(self._fused, types, edges, conditions, executor)

    def _choose(self, edges: EdgeList) -> Backward:
        models = (self.compiled, self.recorded)
        return choose_backward(self.model, self.settings, edges, *models)

    def _give_up_compiling(self, error: CompileError) -> None:
        """Go on without compiled code, which is slower and gives the same numbers."""
        self.compiled = None
        warnings.warn(f"{error}; going on without compiled code", stacklevel=2)


def _refuse_non_finite(outputs: Outputs, model: nn.Module, types: Tensor) -> None:
    results = {
        "energy": outputs.energies,
        "force": outputs.forces,
        "virial": outputs.atomic_virials,
    }
    if outputs.magnetic_forces is not None:
        results["magnetic force"] = outputs.magnetic_forces
    for name, values in results.items():
        finite = torch.isfinite(values.reshape(len(types), -1)).all(1)
        if not finite.all():
            atom = int((~finite).nonzero()[0])
            raise FloatingPointError(
                f"the model gave a non-finite {name} for atom {atom} "
                f"({model.type_map[types[atom]]}); the structure is probably far from "
                "anything that the model was trained on"
            )
