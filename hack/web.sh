#!/usr/bin/env bash
# Build the front end of the dashboard from web/ into src/gangline/dashboard/static, which is committed: nobody needs Node.js
# to install or run gangline.
#
#   hack/web.sh              build
#   hack/web.sh --check      check types, run the unit tests, build elsewhere and compare with what is committed
#   hack/web.sh --packages   bring the packages of web/package-lock.json only
#
# Needs Node.js 20.19 or newer with npm. To change a package: edit web/package.json, run npm install in web/, build.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"    # $cache, say, die, hash_of
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=$root/src/gangline/dashboard/static
cd "$root/web"

command -v node > /dev/null && command -v npm > /dev/null || die "Node.js 20.19 or newer with npm is needed"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
  die "Node.js 20.19 or newer is needed, this is $(node --version)"

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
