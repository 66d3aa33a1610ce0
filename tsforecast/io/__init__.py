"""Files: written whole or not at all, locked, and read safely, whoever made them."""
