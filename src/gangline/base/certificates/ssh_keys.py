"""Pairs of SSH keys for the pods of one job. Imports cryptography, which takes long."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


def ssh_auth_data() -> dict[str, str]:
    """A new pair of ECDSA keys (P-521, as mpi-operator makes them), as the data of a Secret of type ssh-auth."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {"ssh-privatekey": private.decode(), "ssh-publickey": public.decode() + "\n"}
