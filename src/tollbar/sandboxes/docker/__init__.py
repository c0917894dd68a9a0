"""The Docker backend: sandboxes that are containers of any image, on an engine of this machine."""
