"""The parts that forecasters are made of."""
