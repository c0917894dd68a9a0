#!/bin/sh
set -eu
LC_ALL=C
export LC_ALL
grep -v '^$' /app/stops.txt | sort -u > /app/sorted.txt
