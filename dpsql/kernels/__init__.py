"""Compute kernels over arrays; each has a NumPy form, which serves small inputs and checks the compiled one."""
