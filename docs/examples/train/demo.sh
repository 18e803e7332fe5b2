#!/bin/sh
# Trains the model with four processes: demo.sh BUILD_FOLDER.
set -eu
build=${1:-build/release}
exec "$build/bin/tutti" run -n 4 -- "$build/bin/examples/train"
