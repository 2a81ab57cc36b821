# SPDX-License-Identifier: MIT
"""Imported by Python at its start, as this folder is on PYTHONPATH: swaps the loop in each process of a suite.

It must stay small and silent: suites start Python for all sorts of purposes and read what it prints.
"""

import os

if os.environ.get("UVPY_SUITES_LOOP"):
    import suites_loop

    suites_loop.inject(os.environ["UVPY_SUITES_LOOP"])
