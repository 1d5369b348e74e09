package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
)

// TestJobThatWaitsForCapacityTellsEachPlaceOnce lets a job wait for capacity for a day, with places chosen and left
// to the launch: its journal has each place that it tried once, and where it starts at last.
func TestJobThatWaitsForCapacityTellsEachPlaceOnce(t *testing.T) {
	for _, placed := range []bool{false, true} {
		t.Run(fmt.Sprintf("places chosen: %t", placed), func(t *testing.T) {
			w := newWorld(t, 1)
			rate := money.USDPerUnit
			w.pools = nil
			for z := range 3 {
				w.pools = append(w.pools, session.Pool{
					Type: "g6.xlarge", Region: "us-east-1", Zone: fmt.Sprint(z), Spot: true, Rate: &rate,
				})
			}
			began := w.now
			w.up = func(_ session.Pool, at time.Time) bool { return at.Sub(began) > 24*time.Hour }
			id := w.submit("resources: {gpus: L4}\ncapacity: spot\nmax_runtime: 100h\n")
			if placed {
				w.placer = &Placer{
					Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}},
				}
			}
			j := w.run(id, 1, nil)
			if j.State != Succeeded {
				t.Fatalf("%s: %s", j.State, j.Why)
			}
			lines, starts, tries := 0, 0, 0
			for _, of := range []string{id, j.Attempts[0].Session} {
				for _, e := range w.events[of] {
					if e.At.Sub(began) < 24*time.Hour {
						lines++
					}
					if e.Kind == "attempt" && strings.Contains(e.Text, "starts") {
						starts++
					}
					if e.Kind == "no-capacity" {
						tries++
					}
				}
			}
			if lines > 20 || starts == 0 || tries > 3 {
				t.Errorf("a day of waiting is told in %d lines, %d starts and %d refusals: %v", lines, starts, tries, w.events)
			}
		})
	}
}
