#!/usr/bin/env bash
# Run tests/cluster in a cluster with real nodes: build the images, start it, run the tests inside, end it.
#
#   hack/test-cluster.sh [--short] [--where-allowed] [--keep] [PYTEST ARGUMENT...]
#
#   --short           without the tests marked slow, and without the images that only those need
#   --where-allowed   end well, with one line, where the machine cannot run nodes (see hack/cluster.sh)
#   --keep            leave the cluster running, to look at it: hack/cluster.sh exec -- kubectl get pods -A
#
# A cluster that runs already is used and left running. Python is $PYTHON (default: that of .venv).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
short='' allowed='' keep=''
while [ $# -gt 0 ]; do
  case $1 in
    --short) short=1 ;;
    --where-allowed) allowed=1 ;;
    --keep) keep=1 ;;
    *) break ;;
  esac
  shift
done
. "$here/go.sh"
python_of_tests=${PYTHON:-$root/.venv/bin/python}

if "$here/cluster.sh" status > /dev/null; then
  keep=1
else
  code=0
  "$here/cluster.sh" up || code=$?
  [ "$code" != 3 ] || [ -z "$allowed" ] || exit 0
  [ "$code" = 0 ] || exit "$code"
fi
[ -n "$keep" ] || trap '"$here/cluster.sh" down' EXIT

# previous_image: the archive of the image of the commit before, as gangline:previous.
previous_image() (
  commit=$(git -C "$root" rev-parse --quiet --verify HEAD^) || die "there is no commit before this one: upgrades cannot be tested"
  target=$cache/previous-image
  if [ "$(cat "$target/commit" 2> /dev/null)" != "$commit" ]; then
    rm -rf "$target"
    scratch=$(mktemp -d)
    trap 'git -C "$root" worktree remove --force "$scratch/tree"; rm -rf "$scratch"' EXIT
    git -C "$root" worktree add --quiet --detach "$scratch/tree" "$commit"
    "$scratch/tree/hack/image.sh" --name gangline:previous --output "$target" >&2
    echo "$commit" > "$target/commit"
  fi
  ls "$target"/*.tar
)

images=$("$here/image.sh" | grep '\.tar$')
if [ -z "$short" ]; then
  images="$images $(previous_image) $("$here/testimages.sh" python-torch openmpi | grep '\.tar$')"
fi
"$here/helm.sh" > /dev/null
say "loading images ..."
# shellcheck disable=SC2086
"$here/cluster.sh" load $images
marks=cluster
[ -z "$short" ] || marks="cluster and not slow"
cd "$root"
GANGLINE_REQUIRE_CLUSTER=1 "$here/cluster.sh" exec -- "$python_of_tests" -m pytest -m "$marks" --durations 10 tests/cluster "$@"
