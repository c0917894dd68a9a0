"""Admission: which of the waiting Trials may go to the engine now."""
