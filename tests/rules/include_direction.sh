#!/bin/bash
# Folders of core/ include only folders below them; plugins include only the plugin API and their own files. A plugin whose name
# continues another's (algo-x-y, algo-x) is a second form of it and may share its files.
set -u
cd "$1" || exit 2
bad=0
declare -A below=(
  [base]="base" [log]="base log" [config]="base log config" [plugin]="base log config plugin"
  [bootstrap]="base log config plugin bootstrap"
  [topology]="base log config plugin bootstrap topology" [plan]="base log config plugin plan"
  [transport]="base log config plugin bootstrap topology plan transport"
  [device]="base log config plugin device"
  [exec]="base log config plugin bootstrap topology plan transport device exec"
  [ras]="base log config plugin bootstrap topology plan transport device exec ras"
  [comm]="base log config plugin bootstrap topology plan transport device exec ras comm"
  [tools]="base log config plugin bootstrap topology plan transport device exec ras comm tools"
)
for dir in core/*/; do
  folder=$(basename "$dir")
  [ "$folder" = include ] && continue
  allowed=${below[$folder]:-}
  if [ -z "$allowed" ]; then echo "core/$folder: not in the list of folders (tests/rules/include_direction.sh)"; bad=1; continue; fi
  while IFS=: read -r file line text; do
    target=$(sed -E 's/.*"([a-z]+)\/.*/\1/' <<<"$text")
    [[ " $allowed tutti " == *" $target "* ]] && continue
    [ -d "core/$target" ] && { echo "$file:$line: core/$folder must not include core/$target"; bad=1; }
  done < <(grep -rnE '^#include "[a-z]+/' "$dir" --include='*.h' --include='*.cc' --include='*.hpp')
done
while IFS=: read -r file line text; do
  header=$(sed -E 's/.*"([^"]+)".*/\1/' <<<"$text")
  [[ $header == tutti/plugin/* || $header == tutti/cxx/* || $header == */cxx/* ]] && continue
  [ -e "$(dirname "$file")/$header" ] && [[ $header != ../* ]] && continue
  other=$(sed -nE 's#^\.\./(algo-[a-z-]+)/[a-z_.]+$#\1#p' <<<"$header")
  [ -n "$other" ] && [[ $file == plugins/"$other"-*/* ]] && continue
  first=${header%%/*}
  if [ -d "core/$first" ] || [ "$first" = tutti ] || [[ $header == ../* ]]; then
    [ -e "plugin-api/include/$header" ] || [ -e "plugin-api/cxx/$header" ] && continue
    echo "$file:$line: a plugin includes only plugin-api headers, not $header"; bad=1
  fi
done < <(grep -rnE '^#include "' plugins --include='*.h' --include='*.cc' --include='*.c' --include='*.hpp' | grep -vE '^plugins/[^/]+/daemon/')
# Daemons are programs of ours: they may also use the lowest folders of the core and its kernels.
while IFS=: read -r file line text; do
  header=$(sed -E 's/.*"([^"]+)".*/\1/' <<<"$text")
  [ -d "core/${header%%/*}" ] || continue
  [[ $header == base/* || $header == log/* || $header == config/* || $header == exec/kernels.h ]] && continue
  echo "$file:$line: a daemon includes base, log, config and exec/kernels.h of the core, not $header"; bad=1
done < <(grep -rnE '^#include "[a-z]+/' plugins/*/daemon --include='*.h' --include='*.cc')
# Outside libraries stay behind one folder each.
while read -r folder pattern; do
  hits=$(grep -rlE "^#include <$pattern" core --include='*.h' --include='*.cc' | grep -vE "^core/($folder)/" || true)
  [ -n "$hits" ] && { echo "only core/$folder may include <$pattern: $hits"; bad=1; }
done <<'LIST'
log spdlog/
base toml
plugin boost/dll
topology hwloc
topology pugixml
LIST
exit $bad
