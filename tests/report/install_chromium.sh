#!/bin/sh
# Installs a Chromium for the tests in this folder, where apt can be used as root.
# Elsewhere it says so and ends well: those tests then skip, with the reason.
for program in chromium chromium-browser google-chrome; do
    command -v "$program" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no chromium, and no root or apt to install it: the browser tests of the report will be skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install --yes --no-install-recommends chromium; } >"$log" 2>&1; then
    echo "Chromium could not be installed: the browser tests will be skipped ($(tail -n 1 "$log"))" >&2
fi
rm -f "$log"
exit 0
