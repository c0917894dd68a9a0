#!/bin/sh
set -eu
tr 'A-Z' 'a-z' < /app/text.txt | tr -c 'a-z' '\n' | grep -cx toll > /app/count.txt
