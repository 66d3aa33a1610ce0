"""Beliefs of a trained model that a service keeps current."""
