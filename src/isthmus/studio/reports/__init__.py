"""Reports as one HTML file each: no network, readable on paper, and without scripts."""
