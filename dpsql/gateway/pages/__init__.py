"""The gateway in a browser: pages that a server writes, for who asks, and for who owns the data.

Nothing here needs a script, a network or a template. `elements` escapes whatever it is given, `sessions` keeps who is
logged in, and the routes are those of `asking` and of `owning`.
"""
