#!/bin/bash
# run.sh BUILD CMAKE: see README.md.
set -eu
build=$1 cmake=$2 here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
flags=${SANITIZE:+-fsanitize=$SANITIZE}
"$cmake" --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/moved" # an installation may be moved
prefix=$scratch/moved

"$cmake" -S "$here/program" -B "$scratch/b" -DCMAKE_PREFIX_PATH="$prefix" -DBUILD_TESTING=ON -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
"$cmake" --build "$scratch/b" >/dev/null
"$scratch/b/consumer"
plugins=$(find "$prefix" -type d -path '*/tutti/plugins')
[ ! -e "$scratch/b/consumer_static" ] || TUTTI_PLUGIN_PATH=$plugins "$scratch/b/consumer_static"
(cd "$scratch/b" && ctest --output-on-failure | tail -n 3)

pc=$(dirname "$(find "$prefix" -name tutti.pc)")
export PKG_CONFIG_PATH=$pc
read -ra c <<<"$(pkg-config --cflags --libs tutti)"
"${CC:-cc}" $flags "$here/program/consumer.c" -o "$scratch/by-pkg-config" "${c[@]}"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir tutti) "$scratch/by-pkg-config"
read -ra c <<<"$(pkg-config --cflags tutti-plugin-api)"
"${CC:-cc}" -fsyntax-only "$here/program/plugin.c" "${c[@]}"
[ -d "$(pkg-config --variable=plugindir tutti-plugin-api)" ]
echo "find_package and pkg-config: both work from a moved installation"
