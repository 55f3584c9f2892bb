"""The nightly benchmark's rule: falls and differences since a champion was promoted, as a page."""
