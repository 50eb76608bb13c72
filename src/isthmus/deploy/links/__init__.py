"""Ways to reach a robot, by the name that the command line has for them."""

LINKS = {
    "zenoh": "a robot's process on this machine; zenoh:tcp/HOST:PORT for one elsewhere",
    "sim": "a virtual robot in this process, in lock-step, as fast as it goes; sim:FILE or sim:hidden:SEED with a reality",
}
