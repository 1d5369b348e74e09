package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/postgres"
)

// host is a machine with a clock of its own, on a state that others share.
type host struct {
	*desktop
	boot     string
	url      string
	ahead    time.Duration
	fileTime bool // the file system has a clock
}

func (h *host) run(args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	began := time.Now()
	p := Process{
		Args: args, Dir: h.dir, DataDir: filepath.Join(h.dir, "data"), WitnessDir: filepath.Join(h.dir, "witness"),
		Version: "test", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Now:    func() time.Time { return time.Now().Add(h.ahead) },
		Uptime: func() (string, time.Duration) { return h.boot, time.Since(began) },
		Lookup: func(k string) (string, bool) { v, ok := h.env[k]; return v, ok }}
	if h.url != "" {
		p.Args = append(p.Args, "--database-url", h.url)
	}
	if h.fileTime {
		p.FileTime = func(string) (time.Time, error) { return time.Now(), nil }
	}
	code := Run(context.Background(), p)
	validates(h.t, args, out.String())
	return code, out.String(), errs.String()
}

// TestWrongHostClockStopsDecisions checks that the time of holds, approvals and settings is that of
// the state, on PostgreSQL and on a file; a host that is far off is refused, whatever it would
// decide, and one that is a little off decides by the state's time.
func TestWrongHostClockStopsDecisions(t *testing.T) {
	for _, tc := range []struct {
		name     string
		url      func() string
		fileTime bool
		ahead    time.Duration
		says     string
	}{
		{"PostgreSQL, ahead", func() string {
			return postgres.Start(t)
		}, false, 5*time.Hour + 30*time.Second, "5h ahead of"},
		{"PostgreSQL, behind", func() string {
			return postgres.Start(t)
		}, false, -5*time.Hour - 30*time.Second, "5h behind"},
		{"a shared file, ahead", nil, true, 5*time.Hour + 30*time.Second, "5h ahead of"},
		{"a shared file, behind", nil, true, -5*time.Hour - 30*time.Second, "5h behind"},
		{"a file without a clock, behind", nil, false, -5 * time.Hour, "behind"},
		{"PostgreSQL, years ahead", func() string {
			return postgres.Start(t)
		}, false, 3*365*24*time.Hour + 30*time.Second, "ahead of"},
		{"PostgreSQL, years behind", func() string {
			return postgres.Start(t)
		}, false, -5*365*24*time.Hour - 30*time.Second, "behind"},
		{"a shared file, years ahead", nil, true, 3*365*24*time.Hour + 30*time.Second, "ahead of"},
		{"a shared file, years behind", nil, true, -5*365*24*time.Hour - 30*time.Second, "behind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesktop(t)
			d.write("small.yaml", fmt.Sprintf(gateJob, "small", "4h"))
			d.write("big.yaml", fmt.Sprintf(gateJob, "big", "390h"))
			d.write("policies.yaml", ladderPolicies)
			d.write("shared.yaml", "approvers: {ana: [admin], bo: [approver]}\napprovals: {accept: [self-declared]}\n")
			right := &host{desktop: d, boot: "a", fileTime: tc.fileTime}
			if tc.url != nil {
				right.url = tc.url()
			}
			wrong := &host{desktop: d, boot: "b", url: right.url, fileTime: tc.fileTime, ahead: tc.ahead}
			decide := func(h *host, want int, file string) (got decision) {
				t.Helper()
				code, out, errs := h.run("gate", file, "-o", "json")
				if code != want {
					t.Fatalf("gate %s: exit %d, want %d\n%s%s", file, code, want, out, errs)
				}
				if err := json.Unmarshal([]byte(out), &got); err != nil {
					t.Fatal(err)
				}
				return got
			}
			hold, request := decide(right, ExitDone, "small.yaml").HoldID, decide(right,
				ExitHeld, "big.yaml").ApprovalID
			refused := func(who string, args ...string) {
				t.Helper()
				d.env["CURFEW_IDENTITY"] = who
				defer func() { d.env["CURFEW_IDENTITY"] = "ana" }()
				if code, out, errs := wrong.run(args...); code != ExitError ||
					!strings.Contains(errs, "the clock of this machine is") || !strings.Contains(errs, tc.says) {
					t.Errorf("%v: exit %d, %s%s", args, code, out, errs)
				}
			}
			refused("ana", "gate", "small.yaml")
			refused("ana", "budget", "extend", hold, "--amount", "5", "--for", "5h")
			refused("ana", "budget", "settle", hold, "--actual", "1")
			refused("ana", "budget", "release", hold)
			refused("bo", "approve", request)
			refused("bo", "deny", request, "--reason", "no")
			refused("ana", "enforce", "--once", "--enforce", "--policy", "policies.yaml")
			refused("ana", "settings", "set", "shared.yaml", "--reason", "test")

			// What it is shown is as of the state's time.
			var holds struct{ Holds []view.Hold }
			_, out, errs := wrong.run("budget", "holds", "-o", "json")
			if err := json.Unmarshal([]byte(out), &holds); err != nil || len(holds.Holds) != 1 ||
				holds.Holds[0].State != "live" {
				t.Errorf("holds: %s%s", out, errs)
			}
			if _, out, errs := wrong.run("approvals"); !strings.Contains(out, request) ||
				!strings.Contains(out, "approvers: bo") {
				t.Errorf("approvals: %s%s", out, errs)
			}

			// A host that is a little off decides by the state's time.
			if tc.fileTime || right.url != "" {
				wrong.ahead = 20 * time.Second
				id := decide(wrong, ExitDone, "small.yaml").HoldID
				decided := time.Now()
				_, out, _ = right.run("budget", "holds", "-o", "json")
				if err := json.Unmarshal([]byte(out), &holds); err != nil || len(holds.Holds) != 2 {
					t.Fatalf("holds: %s", out)
				}
				for _, h := range holds.Holds {
					if off := h.From.Sub(decided); h.ID == id && off > 2*time.Second {
						t.Errorf("a hold begins %s in the future", off)
					}
				}
			}
			if code, out, errs := right.run("budget", "release", hold); code != ExitDone {
				t.Errorf("release: exit %d, %s%s", code, out, errs)
			}
		})
	}
}

// TestSettingsClockCorrectsStateTime checks that a host that began with a clock far ahead took the
// time of the file along; a person puts it right, and it is recorded.
func TestSettingsClockCorrectsStateTime(t *testing.T) {
	d := newDesktop(t)
	d.write("small.yaml", fmt.Sprintf(gateJob, "small", "4h"))
	h := &host{desktop: d, boot: "a", ahead: 30 * 24 * time.Hour}
	if code, _, errs := h.run("gate", "small.yaml"); code != ExitDone {
		t.Fatal(errs)
	}
	h.boot, h.ahead = "b", 0
	if code, _, errs := h.run("gate", "small.yaml"); code != ExitError ||
		!strings.Contains(errs, "curfew settings clock --reason") {
		t.Fatalf("exit %d, %s", code, errs)
	}
	if code, _, errs := h.run("settings", "clock"); code != ExitUsage {
		t.Errorf("without a reason: exit %d, %s", code, errs)
	}
	if code, _, errs := h.run("settings", "clock", "--reason", "it began in 2031", "-o", "json"); code != ExitDone {
		t.Fatal(errs)
	}
	if code, _, errs := h.run("gate", "small.yaml"); code != ExitDone {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, out, _ := h.run("audit", "--what", "clock"); !strings.Contains(out, "it began in 2031") ||
		!strings.Contains(out, "by ana") {
		t.Errorf("the audit log has %s", out)
	}
}
