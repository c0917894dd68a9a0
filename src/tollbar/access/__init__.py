"""Who is calling and what they may do: workspaces, projects, keys, capabilities, sign-in."""
