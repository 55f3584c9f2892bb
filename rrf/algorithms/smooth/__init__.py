"""Variants of PPO with penalties that make actions smooth: CAPS, L2C2, Lips, LCP, LipsNet."""
