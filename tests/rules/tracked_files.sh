#!/bin/bash
# Nothing that is true on one machine only, and no notes to oneself, in files that are the project's.
set -u
cd "$1" || exit 2
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then list() { git ls-files -z; }
else list() { find . -type f -not -path './build/*' -not -path './.git/*' -print0; }; fi
# Written in pieces, so that this file passes its own rule.
paths='(^|[^A-Za-z0-9_.])/(ho''me/[a-z]+|ro''ot/[a-z.]|work/(ma''in|sha''red)|Use''rs/)'
notes='\b(TO''DO|FIX''ME|XX''X)\b'
bad=0
hits=$(list | xargs -0 grep -InE "$paths|$notes" 2>/dev/null | grep -v '^docs/examples/data/' | head -20)
[ -n "$hits" ] && { echo "paths of one machine, or notes to oneself:"; echo "$hits"; bad=1; }
marks='^(<<<<''<<<|>>>>''>>>)( |$)'
hits=$(list | xargs -0 grep -InE "$marks" 2>/dev/null | head -20)
[ -n "$hits" ] && { echo "marks of a merge that was not finished:"; echo "$hits"; bad=1; }
large=$(list | xargs -0 sh -c 'find "$@" -maxdepth 0 -size +1024k' sh 2>/dev/null)
[ -n "$large" ] && { echo "files over 1 MiB: $large"; bad=1; }
exit $bad
