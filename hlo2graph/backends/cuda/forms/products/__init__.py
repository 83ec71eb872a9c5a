"""Sums of products: dots and convolutions, on tensor cores and off them."""
