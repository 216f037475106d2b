"""Current status of the rack on one screen: the probes, the evaluation of their answers, and the output."""
