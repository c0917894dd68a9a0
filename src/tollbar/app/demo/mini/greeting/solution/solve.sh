#!/bin/sh
set -eu
name=$(sed -n 's/^name=//p' /app/guest.txt)
day=$(sed -n 's/^day=//p' /app/guest.txt)
echo "Welcome, $name! Your table is ready on $day." > /app/greeting.txt
