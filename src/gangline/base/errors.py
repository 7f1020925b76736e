"""The root of every error gangline raises on purpose.

The tree, as it grows upwards through the layers::

    GanglineError
    ├── InputError               what a person wrote is wrong: file, path, remedy   (base)
    │   ├── DecodeError          JSON or YAML that does not fit its type            (api.codec)
    │   └── ConfigError          kubeconfig: file, field, remedy                    (kube.errors)
    ├── KubeError                talking to a server                                (kube.errors)
    │   ├── Unreachable          no answer: refused, reset, timed out, bad TLS
    │   ├── StreamBroken         a watch, log or exec stream ended out of order
    │   ├── BadAnswer            an answer that cannot be read
    │   └── ApiError             the server answered with a Status; one class per reason
    └── Terminal                 retrying cannot help; a controller records it      (base)

Foreign errors are translated where they enter (``raise … from``), so callers catch ours only.
"""


class GanglineError(Exception):
    """Root of the tree."""


class InputError(GanglineError):
    """What a person wrote cannot be used. The message names where, what was found and what to write."""


class TerminalError(GanglineError):
    """Retrying cannot help. A controller records it and waits for the object to change."""
