"""Shows datasets: the card, the report, episodes frame by frame."""
