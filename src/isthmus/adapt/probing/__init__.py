"""What a policy knows of its world."""
