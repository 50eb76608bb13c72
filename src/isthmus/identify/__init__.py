"""From recordings to what the robot is: its numbers, the experiment that tells more, and the physics that no number explains."""
