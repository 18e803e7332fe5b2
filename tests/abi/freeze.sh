#!/bin/sh
# Writes a version's folder from the tree, once, when the version is called: freeze.sh X.Y. Nothing in it is edited afterwards.
set -eu
cd "$(dirname "$0")"
version=$1 root=../..
rm -rf "$version/tutti"
mkdir -p "$version/tutti/plugin/cxx"
cp $root/plugin-api/include/tutti/plugin/*.h "$version/tutti/plugin/"
for part in plugin host tables plan_writer net net_optional collnet store; do cp "$root/plugin-api/cxx/tutti/plugin/cxx/$part.hpp" "$version/tutti/plugin/cxx/"; done
cp $root/plugin-api/template/net/unix.cc "$version/net.cc"
cp $root/plugin-api/template/algo/linear.cc "$version/algo.cc"
layout=layout_$(echo "$version" | tr . _).c
python3 make_layout.py $root/plugin-api/include "$(echo "$version" | tr . _)" >"$layout"
clang-format-14 -i "$layout"
(cd "$version" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
