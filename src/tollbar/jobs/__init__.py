"""Agent Jobs and Trials: submission, durable execution, grading, scores."""
