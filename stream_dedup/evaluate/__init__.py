"""How good the decisions are: truth, measures, sweeps, plots, samples to label, and tuning."""
