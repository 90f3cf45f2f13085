"""How it is computed: operations on tensors, one module or folder each."""
