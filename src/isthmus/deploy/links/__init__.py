"""Links: transports between a controller and a robot."""
