"""What a release says about its own noise, in one vocabulary for all functions.

A verdict follows from what is released and from public values alone, so it costs no privacy. It speaks of the noise of
this call, never of sampling: whether other rows would give the same answer is another question.

==============  =======================================================================================
verdict         meaning
==============  =======================================================================================
clear           the stated claim holds with the stated confidence, whatever the noise was
unclear         noise of this size explains what is seen
biased          the limits of privacy units left out more than the interval is wide: it speaks of the rest alone
undetermined    the mechanism has no answer
not measured    a claim would cost a share of the budget, and none was paid; or the noise is not known
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
VERDICTS = (CLEAR, UNCLEAR, BIASED, UNDETERMINED, NOT_MEASURED, DIFFERS, NO_EVIDENCE)
