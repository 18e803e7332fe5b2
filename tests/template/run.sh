#!/bin/sh
# Installs the build into a folder of its own, builds both plugin templates against the installed package, and checks them.
# usage: run.sh BUILD_DIR SOURCE_DIR [CMAKE]
set -eu
build=$1 source=$2 cmake=${3:-cmake}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
prefix=$work/prefix

"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }
for kind in net algo; do
  cp -r "$source/plugin-api/template/$kind" "$work/$kind" # so that nothing of the repository is near by
  "$cmake" -S "$work/$kind" -B "$work/$kind/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
    >"$work/$kind.log" 2>&1 || { cat "$work/$kind.log"; exit 1; }
  "$cmake" --build "$work/$kind/build" >"$work/$kind.log" 2>&1 || { cat "$work/$kind.log"; exit 1; }
done
"$prefix/bin/tutti" check-plugin "$work/net/build/libtutti-net-unix.so" "$work/algo/build/libtutti-algo-linear.so"
