"""PaliGemma: a SigLIP vision tower and a Gemma language model, the backbone of pi0 and pi0.5."""
