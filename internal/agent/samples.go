package agent

import (
	"encoding/json"
	"os"

	"github.com/curfew-dev/curfew/internal/session"
)

// maxSamples is how large a file of samples becomes before it is put aside, in bytes.
const maxSamples = 4 << 20

// sampled appends what was measured to the file of samples. Where that fails, those who judge
// from outside have a gap, which is unknown and no rest; the session goes on.
func (d *disk) sampled(s session.Measurement) {
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
	_, _ = f.Write(append(line, '\n')) // a line that is cut off is not read
	_ = f.Close()
}
