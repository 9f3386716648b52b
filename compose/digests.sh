#!/usr/bin/env bash
# Prints a line NAME_DIGEST=sha256:... for each image of compose.yaml and the Dockerfile, for .env.
set -euo pipefail
cd "$(dirname "$0")"

{
  sed -nE 's/^ *image: ([^@]+)@\$\{([A-Z_]+):.*/\2 \1/p' compose.yaml
  sed -nE 's/^FROM ([^@]+)@\$\{([A-Z_]+)\} AS .*/\2 \1/p' ../Dockerfile
} | sort -u | while read -r name image; do
  digest="$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')"
  printf '%s=%s\n' "$name" "$digest"
done
