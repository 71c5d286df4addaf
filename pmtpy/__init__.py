"""pmtpy: measure energy with every sensor a machine has, and know how far each number can be trusted."""
