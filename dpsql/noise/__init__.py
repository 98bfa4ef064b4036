"""Exact samplers: the only place where dpsql reads entropy."""
