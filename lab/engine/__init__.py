"""The parts of the stand-in for engines, which lab/engine_standin.py is the program of."""
