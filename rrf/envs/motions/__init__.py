"""Reference motions of robots: the format of clips, retargeting, and generated gaits."""
