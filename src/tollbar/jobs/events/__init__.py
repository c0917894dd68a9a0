"""What happened to a Job and its Trials, in order: written where a state moves, read as events and as logs."""
