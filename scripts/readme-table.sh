#!/bin/sh
# Puts the table of reports/published/amplify.md into README, between its two
# marks. A test holds the two equal.
set -eu
cd "$(dirname "$0")/.."
awk '
	NR == FNR { if ($0 ~ /^(\||- reserve POSTs|- confirm p95|- seed|- source)/) table = table $0 "\n"; next }
	/^<!-- amplify:begin/ { print; split(table, rows, "\n"); inside = 1
		bulleted = 0
		for (i = 1; i in rows && rows[i] != ""; i++) { if (rows[i] ~ /^- / && !bulleted) { print ""; bulleted = 1 } print rows[i] }
		next }
	/^<!-- amplify:end/ { inside = 0 }
	!inside { print }
' reports/published/amplify.md README.md > README.md.new
mv README.md.new README.md
