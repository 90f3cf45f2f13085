"""What operators ask of their tensors, checked before anything runs.

They look at dtypes, sizes, strides and devices only, so that nothing waits for a device.
They belong where a model calls an operator, outside of the operators themselves: compiled
code and recorded graphs do not repeat them.
"""

import re
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

__all__ = ["Requirements"]

_FORM = re.compile(r"(\S+) \(([^)]*)\)(, contiguous)?")


class Requirements:
    """What one operator asks of its tensors.

    Args:
        operator: its name, as messages say it.
        on_kernels: whether it needs a CUDA device; if not, any device does.
        **tensors: what each must be, in the order of :meth:`check`, such as
            ``"float32 (E, 3, D)"`` or ``"int64 (N,), contiguous"``: one dtype, several as
            in ``float32/float64``, or ``any``; sizes, of which a letter is the same
            number wherever it stands, and ``...`` at the end stands for any others.
    """

    def __init__(self, operator: str, on_kernels: bool = True, **tensors: str):
        self._operator, self._on_kernels = operator, on_kernels
        self._wanted = [_Wanted.parse(name, text) for name, text in tensors.items()]

    def check(self, *tensors: Tensor | None, **sizes: int) -> dict[str, int]:
        """Refuse tensors that are not as wanted.

        Args:
            *tensors: in order; None, where the operator takes it, is left out.
            **sizes: numbers that letters stand for, as far as they are known.

        Returns:
            What each letter stands for.

        Raises:
            ValueError: naming the first tensor that does not fit.
        """
        first = device = None
        for wanted, tensor in zip(self._wanted, tensors, strict=True):
            if tensor is None:
                continue
            n_known = len(sizes)
            if not (isinstance(tensor, Tensor) and wanted.fits(tensor, sizes)):
                known = dict(islice(sizes.items(), n_known))
                raise ValueError(self._unfit(wanted, tensor, known))
            if device is None:
                first, device = wanted, tensor.device
            elif tensor.device != device:
                raise ValueError(
                    f"{self._operator}: {first.name} is on {device} and {wanted.name} on "
                    f"{tensor.device}; move them to one device"
                )
        if self._on_kernels and device is not None and device.type != "cuda":
            self._refuse_device(device)
        return sizes

    def _unfit(self, wanted: "_Wanted", tensor: object, sizes: dict[str, int]) -> str:
        known = [f"{x} = {sizes[x]}" for x in wanted.sizes if x in sizes]
        where = f" with {', '.join(dict.fromkeys(known))}" if known else ""
        found: object = type(tensor).__name__
        if isinstance(tensor, Tensor):
            strided = "" if tensor.is_contiguous() else ", not contiguous"
            found = f"{_name(tensor.dtype)} {tuple(tensor.shape)}{strided}"
        return (
            f"{self._operator}: {wanted.name} must be {wanted.text}{where}, not {found}"
        )

    def _refuse_device(self, device: torch.device) -> None:
        if _run_without_gpu():
            return
        raise ValueError(
            f"{self._operator} needs tensors on a CUDA device, these are on {device}; "
            'use kernels="torch"'
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one tensor must be: ``text``, and the same taken apart."""

    name: str
    text: str
    dtypes: tuple[torch.dtype, ...]
    sizes: tuple[str | int, ...]
    n_axes: int
    open_end: bool
    contiguous: bool

    @classmethod
    def parse(cls, name: str, text: str) -> "_Wanted":
        dtypes, sizes, contiguous = _FORM.fullmatch(text).groups()
        kinds = () if dtypes == "any" else [getattr(torch, x) for x in dtypes.split("/")]
        words = [x.strip() for x in sizes.split(",") if x.strip()]
        axes = tuple(int(x) if x.isdigit() else x for x in words if x != "...")
        open_end = words[-1:] == ["..."]
        return cls(
            name, text, tuple(kinds), axes, len(axes), open_end, contiguous is not None
        )

    def fits(self, tensor: Tensor, sizes: dict[str, int]) -> bool:
        """Whether a tensor is so; letters seen for the first time get their number."""
        if self.dtypes and tensor.dtype not in self.dtypes:
            return False
        if self.contiguous and not tensor.is_contiguous():
            return False
        shape = tensor.shape
        if len(shape) != self.n_axes and (not self.open_end or len(shape) < self.n_axes):
            return False
        for size, number in zip(self.sizes, shape, strict=False):
            if size not in sizes and isinstance(size, str):
                sizes[size] = number
            elif sizes.get(size, size) != number:
                return False
        return True


def _run_without_gpu() -> bool:
    """Whether kernels run on the CPU, interpreted."""
    from .products import INTERPRETED

    return INTERPRETED


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
