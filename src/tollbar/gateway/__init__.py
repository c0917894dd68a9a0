"""Metered model calls: what a request can cost at most, what its answer did cost, and a provider that follows a script.

Everything here is pure: bytes and documents in, values out. Prices are read when the first call is priced.
"""
