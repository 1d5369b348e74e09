package agent

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestWritesSamples checks that the sample file holds every tracked step without gaps, and that a
// full file is rotated.
func TestWritesSamples(t *testing.T) {
	d, err := openStateFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	w := newActivityTracker(time.Second, time.Minute, inventory.Known(1))
	w.record = d.appendSample
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	began := at
	addMeasurements(w, &at, 30, measurement{
		cpu: 7, net: 3, disk: -1, typedTerminals: 1, gpus: []GPU{
			{"0", "GPU-a", map[usage.Signal]float64{usage.GPUUtil: 55}},
		},
	})
	lines := func(name string) (all []session.Measurement) {
		f, err := os.Open(d.path(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var one session.Measurement
			if err := json.Unmarshal(s.Bytes(), &one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		return all
	}
	next := began
	for _, s := range lines(session.SamplesFile) {
		_, disk := s.Host["disk_bytes"]
		if !s.Start.Equal(next) || s.Step != session.Duration(time.Second) || s.Host["cpu_util"] != 7 ||
			s.Host["net_bytes"] != 3 || s.Host["sessions"] != 1 || disk || s.GPUs["GPU-a"]["gpu_util"] != 55 {
			t.Fatalf("at %s it is %+v", next, s)
		}
		next = next.Add(time.Duration(s.Steps) * time.Second)
	}
	if !next.Equal(at) {
		t.Errorf("samples end at %s, want %s", next, at)
	}
	if err := os.WriteFile(d.path(session.SamplesFile),
		[]byte(strings.Repeat("{}\n", maxSamples/2)), 0o600); err != nil {
		t.Fatal(err)
	}
	addMeasurements(w, &at, 2, measurement{cpu: 7, net: 3, disk: 0, noGPUs: true})
	if got := lines(session.SamplesFile); len(got) != 2 {
		t.Errorf("the new file has %d lines", len(got))
	}
	if _, err := os.Stat(d.path(session.PreviousSamplesFile)); err != nil {
		t.Error(err)
	}
}
