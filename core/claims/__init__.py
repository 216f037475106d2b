"""What rests on manuals and single reports instead of proof on hardware: one record for each claim."""
