"""Print the page of all codes."""

from dpsql.contract.codes import page

print(page(), end="")
