"""What a model knows beyond energies: embeddings of atoms and second derivatives."""

import threading
from collections.abc import Callable

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from .arithmetic import plain_arithmetic
from .committee import Committee, CommitteeEngine
from .engine import Engine
from .hessian import hessian
from .models import Potential
from .processes import refuse_fork
from .reading import Reader

__all__ = ["Inspection"]


class Inspection:
    """Part of a calculator that asks the model for more than its results."""

    model: Potential
    device: torch.device
    _lock: threading.RLock
    _reader: Reader
    _engine: Engine | CommitteeEngine
    _given: Callable[[Atoms | None], Atoms]

    def warmup(self, atoms: Atoms | None = None) -> None:
        """Do now what the first evaluations would have to: compile, load, record.

        The compiled code serves structures of any size; what is recorded on CUDA serves
        sizes close to this one.

        Args:
            atoms: a structure like those to come; see :meth:`get_descriptors`.

        Raises:
            ValueError: the structure cannot be evaluated; the message says why.
        """
        refuse_fork(self.device)
        with self._lock, plain_arithmetic(self.device):
            system = self._reader.read(self._given(atoms))
            for _ in range(2):  # compiled at the first, recorded at the second
                self._engine.evaluate(system.types, system.edges, system.conditions)

    def get_descriptors(self, atoms: Atoms | None = None) -> np.ndarray:
        """What the model knows about the environment of each atom.

        Args:
            atoms: the structure; None is the one of the last calculation. Neither the
                results of that nor its structure change.

        Returns:
            (N, C), float64: the descriptor, which the fitting net gets.

        Raises:
            ValueError: the structure cannot be evaluated, or the calculator is a
                committee; the message says why.
            FloatingPointError: the model gave an infinite value or none.
        """
        return self._embed("descriptors", atoms)

    def get_last_hidden(self, atoms: Atoms | None = None) -> np.ndarray:
        """Last hidden layer of the fitting net, (N, W); see :meth:`get_descriptors`."""
        return self._embed("last_hidden", atoms)

    def get_hessian(
        self, atoms: Atoms | None = None, progress: bool = True
    ) -> np.ndarray:
        """Second derivatives of the energy by the positions, (3N, 3N) in eV/Å², float64.

        Symmetric, as ``VibrationsData.from_2d`` of ASE takes it; float32 models give it
        to float32 accuracy. ``progress``: a bar on stderr. See :meth:`get_descriptors`.
        """
        refuse_fork(self.device)
        with self._lock, plain_arithmetic(self.device):
            system = self._reader.read(self._given(atoms))
            return hessian(self.model, system, progress).cpu().numpy()

    def _embed(self, what: str, atoms: Atoms | None) -> np.ndarray:
        if isinstance(self.model, Committee):
            raise ValueError(
                "the models of a committee have embeddings of their own that cannot be "
                "averaged; ask a DP of one of calc.model.members"
            )
        refuse_fork(self.device)
        function: Callable[..., Tensor] = getattr(self.model, what)
        with self._lock, plain_arithmetic(self.device), torch.no_grad():
            system = self._reader.read(self._given(atoms))
            values = function(system.types, system.edges, system.conditions)
        if not values.isfinite().all():
            raise FloatingPointError("the model gave values that are not finite")
        return values.double().cpu().numpy().copy()
