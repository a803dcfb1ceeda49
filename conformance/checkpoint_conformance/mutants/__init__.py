"""Servers with one thing wrong: what the harness must catch, each by the rules that it breaks.

A mutant is a right server with one fault, and says which rules must be named when it is checked,
and by which part of which check. :data:`~checkpoint_conformance.mutants.zoo.ZOO` has them all by
name; ``workflow-checkpoint mutants`` lists and runs them.
"""
