"""The contract of protocols, and protocols from files."""
