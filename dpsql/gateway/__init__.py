"""The gateway: a login instead of the rows.

``dpsql serve`` starts it. Nothing here is imported by ``import dpsql``.
"""
