"""A teacher is told e; a student finds out from the consequences of its own actions; both meet the same worlds.

python examples/05_find_out_e.py

A few seconds of training each, so none of the three is a finished policy. See docs/guides/adaptation.md.
"""

from isthmus.cli.main import main

quick = ["--steps", "20000", "--worlds", "64"]
main(["train", "cartpole/balance", "-o", "runs/robust", *quick])
main(["train", "cartpole/balance", "--method", "teacher", "-o", "runs/teacher", *quick])
main(["train", "cartpole/balance", "--method", "student", "--teacher", "runs/teacher", "-o", "runs/student", *quick])
main(["compare", "runs/robust", "runs/teacher", "runs/student", "--grounds", "inside", "--worlds", "40"])
main(["probe", "runs/student", "--worlds", "60"])
