"""What ASE 3.29 and later find through the entry point ``ase.plugins``.

ASE reads this module to list its plugins; PyTorch is imported only with the calculator.
"""

from ase._4.plugins.plugin import CalculatorPlugin

__all__: list[str] = []

__ase_plugins__ = {
    CalculatorPlugin(
        name="dp_calc",
        citation="dp_calc, an ASE calculator for DPA4 potentials (arXiv:2606.02419)",
        implementation="dp_calc.DP",
    )
}
