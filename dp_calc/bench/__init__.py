"""How long an evaluation takes and how much memory it needs: the protocol of a benchmark.

Every arm, a named set of settings, gets a process of its own for each model and size. One
process after the other starts, gives its first answer and warms up; then blocks of timed
evaluations go round the arms, so that what drifts on the machine drifts for all of them.
"""
