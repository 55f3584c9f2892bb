"""The loop that imitates recorded episodes."""
