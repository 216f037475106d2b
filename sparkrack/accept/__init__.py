"""What an owner of a real rack can observe of the claims that this project rests on: claims.yaml of core.claims."""
