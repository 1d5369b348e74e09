package aws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// maxUserData is EC2's limit of user data in bytes, before encoding.
const maxUserData = 16 << 10

// Agent is the program that machines run.
type Agent struct {
	// URL is s3://bucket/key or https://host/path, SHA256 its hexadecimal hash. If both are empty,
	// the image contains the agent.
	URL, SHA256 string
}

// inImage finds the agent of an image, fetched downloads another one. A program with a wrong hash
// never runs.
const (
	inImage = `agent=$(command -v curfew) || { echo "the image has no curfew: set sessions.agent" >&2; exit 1; }
`
	fetched = `agent="$root/usr/local/lib/curfew/curfew"
is_agent() { echo "%[2]s  $1" | sha256sum -c --status 2>/dev/null; }
if ! is_agent "$agent"; then
  mkdir -p "$(dirname "$agent")"
  for try in 1 2 3 4 5; do
    %[1]s && break
    sleep "$try"
  done
  is_agent "$agent.new" || { echo "the program at sessions.agent.url has another SHA-256, or cannot be read: nothing is run" >&2; exit 1; }
  chmod 755 "$agent.new"
  mv "$agent.new" "$agent"
fi
`
)

// lines returns shell lines that set $agent to the path of the agent.
func (a Agent) lines() string {
	switch {
	case a.URL == "":
		return inImage
	case strings.HasPrefix(a.URL, "s3://"):
		return fmt.Sprintf(fetched, "aws s3 cp --only-show-errors '"+a.URL+"' \"$agent.new\"", a.SHA256)
	}
	return fmt.Sprintf(fetched, "curl -fsSL --retry 5 --max-time 600 -o \"$agent.new\" '"+a.URL+"'", a.SHA256)
}

// script is the user data of a machine, run at its first start; the service that it installs runs
// at each start. A machine whose agent cannot start shuts itself down, because it would cost money
// for nothing: at once if the agent is missing, and after its lease if the agent keeps failing.
// $CURFEW_ROOT is the root of the machine's files in tests.
const script = `#!/bin/sh
set -eu
umask 077
root="${CURFEW_ROOT:-}"
export CURFEW_HOST="${CURFEW_HOST:-$root/etc/curfew/host.json}" HOME="${HOME:-/root}" AWS_REGION="${AWS_REGION:-%[1]s}"
trap 'shutdown -h now' EXIT
imds() { curl -sf --retry 10 --retry-connrefused --max-time 5 "$@"; }
at="${CURFEW_METADATA:-http://169.254.169.254}"
token=$(imds -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$at/latest/api/token")
node=%[5]s
mkdir -p "$(dirname "$CURFEW_HOST")"
{ printf '{"node":%%s,' "$node"; echo %[2]s | base64 -d; } > "$CURFEW_HOST"
%[3]srun="$(dirname "$CURFEW_HOST")/run"
cat > "$run" <<'END'
#!/bin/sh
export CURFEW_HOST="$1" HOME="$3" AWS_REGION="$4"
failed=0
while began=$(date +%%s); ! "$2" agent host "$CURFEW_HOST"; do
  now=$(date +%%s)
  if [ $((now - began)) -lt 60 ]; then failed=$((failed + 1)); else failed=0; fi
  if [ "$failed" -ge 60 ] && [ "$now" -ge %[4]d ]; then shutdown -h now; exit 1; fi
  sleep 5
done
END
chmod 700 "$run"
boot="$root/var/lib/cloud/scripts/per-boot"
if [ -d "$boot" ]; then
  printf '#!/bin/sh\nexec "%%s" "%%s" "%%s" "%%s" "%%s"\n' "$run" "$CURFEW_HOST" "$agent" "$HOME" "$AWS_REGION" > "$boot/curfew"
  chmod 700 "$boot/curfew"
fi
trap - EXIT
exec "$run" "$CURFEW_HOST" "$agent" "$HOME" "$AWS_REGION"
`

// launchIndex asks the metadata service for the place of a machine in its launch.
const launchIndex = `$(imds -H "X-aws-ec2-metadata-token: $token" "$at/latest/meta-data/ami-launch-index")`

// userData returns the script that a machine runs when it starts: it writes the configuration of
// the host with the number of its node, and starts the agent. All nodes of a launch get the same script; each
// asks the metadata service for its number, and a machine that replaces another one gets it. It holds no secret.
func (l *Launcher) userData(want session.Launch) (string, error) {
	h := want.Host
	h.WholeMachine = true
	told, err := json.Marshal(h)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(told, &fields)
	}
	delete(fields, "node")
	if err == nil {
		told, err = json.Marshal(fields)
	}
	if err != nil {
		return "", fmt.Errorf("write the host configuration: %w", err)
	}
	node := launchIndex
	if want.FirstNode > 0 || h.Round > 0 {
		node = strconv.Itoa(want.FirstNode)
	}
	over := h.LeaseUntil.Add(time.Duration(h.Grace) + time.Duration(h.SaveLimit))
	var b bytes.Buffer
	fmt.Fprintf(&b, script, want.Pool.Region, base64.StdEncoding.EncodeToString(bytes.TrimPrefix(told, []byte("{"))),
		l.options.Agent.lines(), over.Unix(), node)
	if b.Len() > maxUserData {
		return "", fmt.Errorf(
			"the host configuration takes %d bytes of user data, and EC2 takes %d: shorten setup, env "+
				"and secrets of the session", b.Len(), maxUserData)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}
