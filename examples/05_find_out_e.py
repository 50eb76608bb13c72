"""A teacher is told e; a student finds out from the consequences of its own actions; both meet the same worlds.

python examples/05_find_out_e.py

About a minute. The cartpole is easy enough for one policy to cope with all worlds; docs/results/adaptation.md has robots for
which it matters to know.
"""

from isthmus.cli.main import main

quick = ["--steps", "200000"]
main(["train", "cartpole/balance", "-o", "runs/robust", *quick])
main(["train", "cartpole/balance", "--method", "teacher", "-o", "runs/teacher", *quick])
main(["train", "cartpole/balance", "--method", "student", "--teacher", "runs/teacher", "-o", "runs/student", *quick])
main(["compare", "runs/robust", "runs/teacher", "runs/student", "--grounds", "inside", "--worlds", "100"])
main(["probe", "runs/student", "--worlds", "200"])
