"""Compute kernels over Arrow arrays; each has a NumPy form that serves small work and checks the fast one."""
