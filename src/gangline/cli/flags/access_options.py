"""The options that say who may use the API server of a plane, and which admission plugins it has."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from gangline.base.errors import InputError
from gangline.base.options import option_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.apiserver.users import UserInfo
    from gangline.local.plane import PlaneSettings


class AccessOptions(NamedTuple):
    """The access options, as given on the command line."""

    token_auth_file: Path | None = None
    disable_admission_plugins: tuple[str, ...] = ()

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> Self:
        """Take the access options out of the options of a command."""
        return cls(*(options.pop(name) for name in cls._fields))

    def check(self) -> None:
        """Raise `InputError` for a file or a name that cannot be used."""
        self._users()
        self._disabled_plugins()

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        tokens = [] if self.token_auth_file is None else ["--token-auth-file", str(self.token_auth_file.absolute())]
        names = ",".join(self.disable_admission_plugins)
        return [*tokens, *(["--disable-admission-plugins", names] if names else [])]

    def apply(self, settings: "PlaneSettings") -> "PlaneSettings":
        """The settings with these options. Raises `InputError`."""
        import msgspec

        return msgspec.structs.replace(
            settings, users=self._users(), disabled_admission_plugins=self._disabled_plugins()
        )

    def _users(self) -> "Mapping[str, UserInfo]":
        if self.token_auth_file is None:
            return {}
        from gangline.apiserver.auth.token_file import read_token_file

        return read_token_file(self.token_auth_file)

    def _disabled_plugins(self) -> tuple[str, ...]:
        names = tuple(name.strip() for text in self.disable_admission_plugins for name in text.split(","))
        if not names:
            return ()
        from gangline.apiserver.admission.plugins import ABSENT_PLUGINS, PLUGIN_NAMES

        for name in names:
            if name not in PLUGIN_NAMES | ABSENT_PLUGINS:
                known = ", ".join(sorted(PLUGIN_NAMES))
                raise InputError(f"--disable-admission-plugins {name}: is no admission plugin; write one of {known}")
        return names


access_options = option_group(
    click.option(
        "--token-auth-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help='Users of the API server, as in kube-apiserver: lines of token,user,uid,"group1,group2".',
    ),
    click.option(
        "--disable-admission-plugins",
        multiple=True,
        metavar="NAMES",
        help="Admission plugins to leave out, by kube-apiserver's names, separated by commas.",
    ),
)
"""Adds the access options to a command, which takes them out of its options with `AccessOptions.take_from`."""
