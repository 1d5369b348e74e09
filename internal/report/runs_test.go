package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestRunsShowConnections checks that a list of sessions names the connections to running sessions,
// with machine and start, and none to finished ones.
func TestRunsShowConnections(t *testing.T) {
	now := time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)
	by := []session.NodeConnection{
		{
			Node: 1,
			Connection: session.Connection{
				Kind: "ssh", Source: "ana-0f3a9c6e85af1b2c3d", Since: now.Add(-90 * time.Minute),
			},
		},
		{Node: 0, Connection: session.Connection{Kind: "port", Source: "bo-77", Since: now.Add(-time.Minute)}},
	}
	doc := view.Runs{}
	for name, state := range map[string]session.State{
		"demo": session.Ready, "over": session.Ended, "going": session.Ending,
	} {
		doc.Runs = append(doc.Runs,
			view.NewRun(session.Session{
				Name: name, State: state, Machines: make([]session.Machine, 2),
				LeaseUntil: now.Add(time.Hour), Connections: by,
			}, now))
	}
	for _, r := range doc.Runs {
		if want := map[string]int{"demo": 2}[r.Name]; len(r.Connections) != want {
			t.Errorf("%s has %d connections, want %d", r.Name, len(r.Connections), want)
		}
	}
	for _, width := range []int{80, 120} {
		var text bytes.Buffer
		if err := Runs(doc, now).Text(&text, width); err != nil {
			t.Fatal(err)
		}
		out := text.String()
		for _, want := range []string{
			"connection", "demo", "ana-0f3a9c6e85af1b2c3d", "ssh", "16:30", "bo-77", "17:59",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("width %d: no %q in\n%s", width, want, out)
			}
		}
		for line := range strings.Lines(out) {
			if layout.Width(strings.TrimRight(line, "\n")) > width {
				t.Errorf("width %d: %q is wider", width, line)
			}
		}
		if strings.Count(out, "ana-") != 1 {
			t.Errorf("sessions that do not run have connections:\n%s", out)
		}
	}
}
