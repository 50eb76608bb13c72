"""Constants of nature, in SI units."""

STANDARD_GRAVITY = 9.80665
"""m/s²: the unit g, by definition."""
MODEL_GRAVITY = 9.81
"""m/s²: what MuJoCo's models have by default, and ours."""
