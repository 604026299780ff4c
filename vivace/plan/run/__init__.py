"""From one step to a whole training: days, energy, carbon, cost, and how sure the figures are."""
