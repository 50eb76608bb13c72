"""What tests share: episodes, controllers, robots and runs of one on the other."""
