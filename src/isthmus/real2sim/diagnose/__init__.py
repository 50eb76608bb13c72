"""Why a robot did not do in reality what it did in simulation: from its recordings to ranked causes, and what to do."""
