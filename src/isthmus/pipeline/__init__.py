"""The loop: train, run on the robot, diagnose the gap, identify, retrain, validate; a resumable sequence of library calls.

loop            the verb; it runs the calls of `stages` and returns a LoopResult
stages          which call comes next, as a generator that is sent the record of each call
decisions       every decision of the loop as pure functions of evidence that hardware can give
evidence        attempts, repairs, and what the robot showed of a policy
journal         a record of each finished call; a loop that was killed resumes from them
library         how a call is carried out: a function of the library by name
command_line    the `isthmus` command that is equivalent to a call
settings        what a loop was asked for, and its rules with units;  budgets: training steps of each task
outcome         LoopResult and its sentences;  time_left: how long a loop may still take
virtual_score   success of a virtual robot over many episodes: for the report, computed after the last decision
"""
