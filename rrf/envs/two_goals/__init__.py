"""A small task with two solutions, to test populations on."""
