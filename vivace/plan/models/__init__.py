"""What a transformer is to the planner, and where its sizes come from: names, config files, FLOPs."""
