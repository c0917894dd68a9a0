"""Profiles and adapters: how one agent is run."""
