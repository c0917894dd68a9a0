#!/bin/sh
set -eu
cd /app
sed -e 's/^port = .*/port = 8080/' -e 's/^debug = on$/debug = off/' -e '/^debug = maybe$/d' server.conf > server.new
echo "log_level = info" >> server.new
mv server.new server.conf
