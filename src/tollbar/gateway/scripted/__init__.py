"""A provider whose answers stand in a script: one text source, the wire form of every dialect, usage at real prices.

What it answers is SIMULATED, and whoever shows a result of it says so.
"""

from tollbar.gateway.scripted.answers import Scripted, answer, count, price_row
from tollbar.gateway.scripted.choice import Facts
from tollbar.gateway.scripted.script import Script, load

__all__ = ["Facts", "Script", "Scripted", "answer", "count", "load", "price_row"]
