#!/bin/sh
reward=0
if [ -f /app/count.txt ] && [ "$(tr -d ' \t\r\n' < /app/count.txt)" = "8" ]; then
    reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
