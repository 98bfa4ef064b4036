"""What a release says about its own noise, in one vocabulary for all functions.

A verdict follows from what is released and from public values alone, so it costs no privacy. It speaks of the noise of
this call, never of sampling: whether other rows would give the same answer is another question.

Of these words the first that holds is the verdict; docs/verdicts.md has the whole table.

==============  =======================================================================================
verdict         meaning
==============  =======================================================================================
undetermined    noise leaves nothing: value and interval are NULL
biased          the limits of privacy units left out more than half of the interval: it speaks of the rest alone
clear           the stated claim, which can fail, holds with the stated confidence, whatever the noise was
unclear         noise of this size explains what is seen
not measured    the error is not known, or a claim would cost a share of the budget, and none was paid
==============  =======================================================================================

Where a call asks for sampling, its intervals are about the population that the rows were drawn from, and verdicts
follow from these. Comparisons have words of their own:

==============  =======================================================================================
differs         the interval of the difference excludes 0
no evidence     it does not: noise and sampling explain a difference of this size
undetermined    the interval says nothing, or a group may be empty
==============  =======================================================================================
"""

from __future__ import annotations

CLEAR = "clear"
UNCLEAR = "unclear"
BIASED = "biased"
UNDETERMINED = "undetermined"
NOT_MEASURED = "not measured"
# Of a comparison, whose interval also counts sampling: whether there is a difference in the world.
DIFFERS = "differs"
NO_EVIDENCE = "no evidence"
# What is known of a number of a query beside its interval, from the best to the worst: its claim is not to be 0; the
# interval is at most half of what was public before; it is wider than that; limits left out too much; a divisor may be
# 0. An expression has the worst of its numbers.
COUNTED, NARROWED, DOUBTED, LEFT_OUT, UNDIVIDED = range(5)
VERDICTS = (CLEAR, UNCLEAR, BIASED, UNDETERMINED, NOT_MEASURED, DIFFERS, NO_EVIDENCE)
