#!/usr/bin/env bash
# Writes the table of what the Postgres wire costs from the benchmark's output
# on standard input, which is shown, too.
set -euo pipefail
out=$1
text=$(tee /dev/stderr)
{
  echo "# What the Postgres wire costs"
  echo
  echo "Made by \`make bench-wire\`, each line a run of its own in which Postgres alone and Postgres through the wire take turns: a prepared \`select 1\`, loopback."
  echo "ratio is the throughput through the wire by that without it. Runs that measure latency (\`amplify\`) keep off the wire."
  echo
  echo "| clients | ratio | direct, us a call | through the wire, us a call |"
  echo "| ---: | ---: | ---: | ---: |"
  awk '/^BenchmarkPassThrough\// {
    split($1, name, "="); sub(/-[0-9]+$/, "", name[2])
    for (i = 2; i < NF; i++) { if ($(i+1) == "ratio") r = $i; if ($(i+1) == "direct-us/op") d = $i; if ($(i+1) == "wire-us/op") w = $i }
    printf "| %s | %.2f | %.0f | %.0f |\n", name[2], r, d, w }' <<<"$text"
  echo
  awk -F': ' '/^(goos|goarch|cpu):/ { printf "%s%s", sep, $2; sep = ", " } END { print "" }' <<<"$text"
  date -u '+%Y-%m-%d %H:%M UTC'
} > "$out"
