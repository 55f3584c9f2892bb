"""Brings data here and sends it away: downloads, S3, the Hugging Face hub, publishing."""
