"""tollbar: a self-hosted control plane for LLM agents."""

__version__ = "0.1.0"
