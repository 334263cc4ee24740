"""Small mistakes put into the claim protocol and the transaction loop, one at a time.

A mutant is the code with one such mistake; tests that notice it kill it. Those that survive show
what no test would notice. ``python -m tests.mutation`` (``make mutation``) runs a sample.

Why no ready-made library: *cosmic-ray* writes each mutant to the disk and starts a command for it,
which here costs more than a second of imports before the first test. *mutmut* keeps all mutants of
a function beside it and takes what tests ran through the function; it has no order of tests by
cost, leaves out properties and class methods, and all code outside of functions. Neither draws a
sample, knows Lua, or has runs that are not of pytest, as are the schedules and seeds here. What is
left to write is small: where operators stand is told by ``ast``.
"""
