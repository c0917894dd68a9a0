"""Small things that every package needs: ids, money, time, pages, strict JSON, text, and the error base.

Imports nothing of ours.
"""
