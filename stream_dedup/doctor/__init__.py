"""Checks of everything that a worker rests on: small functions, from facts to findings.

Each subject has a module that looks (``*_facts``), and modules of checks, which are pure. What a
worker checks before it starts are those of them that are ``required``.
"""
