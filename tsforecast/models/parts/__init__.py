"""What forecasters are made of."""
