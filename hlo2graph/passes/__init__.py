"""Module to Module: what changes a program without changing its meaning."""
