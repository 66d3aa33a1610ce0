"""Particles over weights, moved by Stein variational gradient descent."""
