"""The folder that is put on the path of a foreign interpreter, with nothing else of rrf in it."""
