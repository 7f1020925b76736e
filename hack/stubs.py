"""Write the stubs of the packages whose names are looked up when first used: type checkers read these instead."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = ("gangline", "gangline.operator", "gangline.testing")


def stub(package: str) -> str:
    """The text of `__init__.pyi`."""
    tree = ast.parse(folder(package).joinpath("__init__.py").read_text())
    tables = {
        ast.unparse(found.targets[0]): ast.literal_eval(found.value)
        for found in tree.body
        if isinstance(found, ast.Assign) and ast.unparse(found.targets[0]) in ("_NAMES", "_DEPRECATED")
    }
    version = "__version__: str\n" if package == "gangline" else ""
    homes = {name: home for home, each in tables["_NAMES"].items() for name in each}
    # The order of the linter: constants, classes, functions.
    ordered = sorted(homes.items(), key=lambda item: (item[1], not item[0].isupper(), item[0].islower(), item[0]))
    imports = [f"from {home} import {name} as {name}\n" for name, home in ordered]
    # A name that was changed is still known by its old one.
    renamed = sorted(
        f"{name} = {instead}\n" for name, (instead, *_) in tables.get("_DEPRECATED", {}).items() if name not in homes
    )
    return "\n".join(filter(None, ("".join(imports), "".join(renamed), version)))


def folder(package: str) -> Path:
    return SOURCE.joinpath(*package.split("."))


if __name__ == "__main__":
    for each in PACKAGES:
        folder(each).joinpath("__init__.pyi").write_text(stub(each))
