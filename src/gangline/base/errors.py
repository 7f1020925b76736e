"""The root of every error gangline raises on purpose.

The tree, with the module that defines each part::

    GanglineError
    ├── InputError               wrong input of a person: file, path, remedy         (base)
    │   ├── DecodeError          JSON or YAML that does not fit its type            (api.codec)
    │   └── ConfigError          kubeconfig: file, field, remedy                    (kube.errors)
    ├── KubeError                talking to a server                                (kube.errors)
    │   ├── Unreachable          no response: refused, reset, timed out, bad TLS
    │   ├── StreamBroken         a watch, log or exec stream was cut off
    │   ├── MalformedResponse    a response that cannot be decoded
    │   └── ApiError             the server answered with a Status; one class per reason
    └── TerminalError            retrying cannot help; a controller records it      (base)

Errors of libraries are translated where they occur (``raise … from``), so callers catch only these.
"""


class GanglineError(Exception):
    """The base class of all errors of gangline."""


class InputError(GanglineError):
    """Input of a person that cannot be used. The message says where it is, what is wrong and what to write."""


class TerminalError(GanglineError):
    """An error that retrying cannot fix. The controller records it and waits for the object to change."""
