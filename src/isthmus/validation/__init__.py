"""Whether a controller is good enough: stages of trials, each with a gate whose error rates are known."""
