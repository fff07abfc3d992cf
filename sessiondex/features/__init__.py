"""Tools for models, and what installs and serves them."""
