"""Files that a kubeconfig refers to."""

from pathlib import Path

from gangline.kube.errors import ConfigError


def read_config_file(path: Path, where: str) -> bytes:
    """The content of a file. Raises `ConfigError` when the file is missing or cannot be read.

    `where` names the field that refers to the file; the error message begins with it.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{where}: {path}: no such file; correct the path or create it") from None
    except PermissionError:
        raise ConfigError(f"{where}: {path}: permission denied; make it readable for this user") from None
    except OSError as error:
        raise ConfigError(f"{where}: {path}: cannot be read: {error.strerror}") from None
