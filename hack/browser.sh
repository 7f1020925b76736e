#!/usr/bin/env bash
# Bring a browser for tests/browser: Debian's Chromium, fonts, Playwright for Python and axe-core. Nothing is installed.
#
#   hack/browser.sh           bring what is not there yet, and print where each is
#   hack/browser.sh --where   print where they go and fetch nothing
#
# Prints, a line each: the program, the folder of its libraries, its fonts.conf, the Python packages of Playwright, axe.
# Debian packages are unpacked into $GANGLINE_CACHE (default: ~/.cache/gangline); Playwright's go into a virtual environment
# there, made from tests/browser/requirements.txt. To change them: edit requirements.in and there run
#   uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements.in -o requirements.txt
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/go.sh"    # $cache, $python, say, die, hash_of
. "$here/debian.sh"
tests=$here/../tests/browser

# Latin and Chinese, text and code: pictures look the same wherever they are taken.
packages="chromium fonts-inter fonts-jetbrains-mono fonts-wqy-zenhei"
browser=$cache/chromium-$(printf '%s' "$packages" | hash_of -)
environment=$cache/playwright-$(hash_of "$tests/requirements.txt")-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

fetch_browser() (
  needs_debian
  say "fetching Chromium from Debian's packages ..."
  scratch=$(mktemp -d "$cache/chromium.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  # Word for word: the list is split on purpose.
  # shellcheck disable=SC2086
  download "$scratch/packages" $packages
  unpack "$scratch/packages" "$scratch/tree"
  cat > "$scratch/tree/fonts.conf" <<CONF
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>$browser/usr/share/fonts</dir>
  <cachedir>$browser/font-cache</cachedir>
  <alias><family>sans-serif</family><prefer><family>Inter</family><family>WenQuanYi Zen Hei</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>JetBrains Mono</family><family>WenQuanYi Zen Hei Mono</family></prefer></alias>
</fontconfig>
CONF
  rm -rf "$browser"
  mv "$scratch/tree" "$browser"
)

fetch_playwright() {
  say "installing Playwright ..."
  rm -rf "$environment"
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r "$tests/requirements.txt" >&2
  touch "$environment/complete"  # last, so that half an environment is never used
}

if [ "${1:-}" != --where ]; then
  [ -x "$browser/usr/lib/chromium/chromium" ] || fetch_browser
  [ -f "$environment/complete" ] || fetch_playwright
  "$here/web.sh" --packages
fi
printf '%s\n' "$browser/usr/lib/chromium/chromium" "$browser/usr/lib" "$browser/fonts.conf"
printf '%s\n' "$environment/lib/python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages"
printf '%s\n' "$(cd "$here/.." && pwd)/web/node_modules/axe-core/axe.min.js"
