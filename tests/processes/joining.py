"""Beginnings of programs whose processes join each other."""

JOIN = """
import jax, numpy as np, sys, time
import tfdist_jax as td
from jax.experimental import multihost_utils
mine = td.initialize()
gather = lambda: multihost_utils.process_allgather(np.array([mine.process_id]))[:, 0].tolist()
"""


WORK = (
    JOIN
    + """
gather()
result("works", True)
while True:
    gather()
    time.sleep(0.01)
"""
)
