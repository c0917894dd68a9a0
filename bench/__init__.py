"""What tollbar costs, measured from outside and beside the bare sandboxes and its peers."""
