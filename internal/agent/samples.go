package agent

import (
	"encoding/json"
	"os"

	"github.com/curfew-dev/curfew/internal/session"
)

// maxSamples is the size in bytes at which a sample file is rotated.
const maxSamples = 4 << 20

// appendSample appends a measurement to the sample file. A failed write leaves a gap, which
// collectors treat as unknown and never as idle.
func (d *stateFolder) appendSample(s session.Measurement) {
	line, err := json.Marshal(s)
	if err != nil {
		return
	}
	path := d.path(session.SamplesFile)
	if info, err := os.Stat(path); err == nil && info.Size() > maxSamples {
		if os.Rename(path, d.path(session.PreviousSamplesFile)) != nil {
			return
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.Write(append(line, '\n')) // readers skip incomplete lines
	_ = f.Close()
}
