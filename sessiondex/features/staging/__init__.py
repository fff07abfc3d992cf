"""Staging: where candidates of extract runs are written down until someone closes them."""
