"""RouterOS scripts: from text to what they do."""
