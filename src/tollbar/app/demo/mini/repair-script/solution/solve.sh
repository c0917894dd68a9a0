#!/bin/sh
set -eu
cat > /app/total.sh <<'SCRIPT'
#!/bin/sh
# usage: total.sh FILE
file=$1
if [ ! -r "$file" ]; then
    echo "cannot read $file" >&2
    exit 1
fi
total=0
while IFS= read -r line; do
    case $line in
        "" | "#"*) continue ;;
    esac
    total=$((total + line))
done < "$file"
echo "$total"
SCRIPT
chmod 755 /app/total.sh
