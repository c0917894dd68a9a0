#!/bin/sh
# Passes when the file holds the one line that was asked for, and nothing else.
reward=0
if [ -f /app/hello.txt ] && [ "$(cat /app/hello.txt)" = "Hello, world!" ]; then
    reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
