package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/otheruser"
)

const sessionsConfig = `approvers: {bo: [approver], ana: [approver]}
sessions: {cloud: local, grace: 1s, max_lease: 24h}
gate: {ask_over: 20}
budgets: [{id: ana, user: ana, purpose: any, amount: 500}]
rates: {source: finance, as_of: 2026-11-01, vcpu_hour: "1.80", memory_gib_hour: "0.000000001"}
`

const sessionFile = `apiVersion: curfew.session/v1
name: demo
purpose: experimentation
owner: {user: ana}
resources: {cpus: 1}
lease: 1h
idle: 1h
env: {GREETING: hello}
`

// passing are the fields in which two equal sessions differ: times, amounts, counters.
var passing = []struct{ is, as string }{
	{`\b[0-9a-f]{8,}\b`, "ID"}, {`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC)?`, "TIME"},
	{`\b\d\d:\d\d(:\d\d)?( UTC)?`, "TIME"}, {`(?s),\s*"hosts": \[.*?\n      \]`, ""}, {`<?\$[0-9.,]+`, "DOLLARS"},
	{`"(cost_usd|bytes)": [^,\n]+`, "AMOUNT"}, {`\d+(\.\d+)?(ms|[smhd])( \d+[smhd])*\b`, "DURATION"},
	{`"terminals": \d+`, "TERMINALS"}, {`-+`, "-"}, {` +`, " "},
	{`"run_as": "[a-z0-9-]+"`, `"run_as": "USER"`},
}

func masked(text string) string {
	for _, p := range passing {
		text = regexp.MustCompile(p.is).ReplaceAllString(text, p.as)
	}
	return text
}

// TestSessionsOfOtherUsersAtAServer gives the commands of sessions to the state of this machine and
// to a server: outputs, errors and exit codes are the same, and both have sessions that run.
func TestSessionsOfOtherUsersAtAServer(t *testing.T) {
	d := newDesktop(t)
	one := otheruser.One(t)
	d.write("curfew.yaml", sessionsConfig+fmt.Sprintf("local: {serve: true, users: {ana: %s}, dir: %s}\n", one.Name,
		otheruser.Shared(t)))
	d.write("demo.yaml", sessionFile)
	d.write("job.yaml", fmt.Sprintf(gateJob, "finetune", "8h"))
	mine, theirs, none := filepath.Join(d.dir, "mine"), filepath.Join(d.dir, "theirs"), filepath.Join(d.dir, "none")
	srv := serveState(t, d.dir, theirs, func() string { return "ana" }, time.Now, nil)
	unchanged := srv.owned(t, theirs, none)
	keeping, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sessions.Keep(keeping, srv.req.Fresh(), true); err != nil && keeping.Err() == nil {
			t.Error(err)
		}
	})
	here := func(args ...string) gave {
		return d.giveAt(mine, 0, map[string]string{"CURFEW_IDENTITY": "ana"}, args...)
	}
	there := func(args ...string) gave {
		return d.giveAt(none, 0, map[string]string{"CURFEW_IDENTITY": "cy", "CURFEW_SERVER": srv.URL}, args...)
	}
	t.Cleanup(func() {
		for _, give := range []func(...string) gave{here, there} {
			if got := give("down", "--all", "--discard", "-q"); got.code != ExitDone {
				t.Errorf("exit %d: %s%s", got.code, got.out, got.errs)
			}
		}
		stop()
		wg.Wait()
	})
	statuses := map[string]string{} // while it runs: the messages of machines differ with the time
	both := map[string]func(...string) gave{"here": here, "at the server": there}
	for name, give := range both { // each step is reported as it happens
		if up := give("up", "demo", "-f", "demo.yaml"); up.code != ExitDone ||
			!regexp.MustCompile(`(?s)requested.*gate.*launching.*ready`).MatchString(up.errs) {
			t.Errorf("%s: exit %d: %s%s", name, up.code, up.out, up.errs)
		}
		statuses[name] = give("status", "demo", "-o", "json").out
	}
	type given struct {
		code int
		text string
	}
	lines := []given{
		{ExitDone, "up demo -q -o json"}, {ExitUsage, "up demo --cpus 1 --nodes 2"}, {ExitDone, "ls"},
		{ExitDone, "ls -o json"}, {ExitDone, "status demo -o json"},
		{ExitDone, "extend demo --for 1h"}, {ExitDenied, "extend demo --for 48h"},
		{ExitDenied, "extend demo --for 48h -o json"}, {ExitUsage, "extend demo --for soon"},
		{ExitError, "extend nosuch --for 1h"},
		{ExitUsage, "up x --lease soon"}, {ExitUsage, "up z -f job.yaml"}, {ExitUsage, "up z -f missing.yaml"},
		{ExitUsage, "up a/b --cpus 1"}, {ExitUsage, "up stray-x --cpus 1"}, {ExitDenied, "up x --cpus 1 --lease 100h"},
		{ExitUsage, "up x --gpu L4:many"},
		{
			ExitHeld, "up large --cpus 1 --lease 20h",
		}, {ExitHeld, "up large --cpus 1 --lease 20h -o json"}, {ExitDone, "ls"},
		{ExitDone, "down large -q"}, {ExitDenied, "up large --cpus 1 --lease 23h --nodes 20 -o json"},
		{ExitError, "logs nosuch"}, {ExitError, "status nosuch -o json"},
		{ExitError, "down nosuch"}, {ExitUsage, "down"},
		{ExitDone, "down demo -q"}, {ExitDone, "down demo -q -o json"}, {ExitDone, "status demo"},
		{ExitError, "extend demo --for 1h"}, {ExitDone, "ls --all"}, {ExitDone, "ls"},
	}
	if os.Getenv("CURFEW_SLOW") != "" { // and once more with its work
		lines = append(lines, given{ExitDone, "up demo -q"}, given{ExitDone, "down demo --discard -q"},
			given{ExitDone, "up demo -q --detach"}, given{ExitDone, "down --all --detach --discard"})
	}
	for _, line := range lines {
		a, b := here(strings.Fields(line.text)...), there(strings.Fields(line.text)...)
		if a.code != line.code || a.code != b.code || masked(a.out) != masked(b.out) ||
			masked(a.errs) != masked(b.errs) {
			t.Errorf("curfew %s, want exit %d\nhere: exit %d\n%s%s\nat the server: exit %d\n%s%s",
				line.text, line.code, a.code,
				a.out, a.errs, b.code, b.out, b.errs)
		}
	}
	for name, give := range both {
		if strings.Contains(masked(statuses[name]), "hosts") ||
			!regexp.MustCompile(`"phase": "(ready|warned)"`).MatchString(statuses[name]) {
			t.Errorf("%s the machine says\n%s", name, statuses[name])
		}
		got := give("logs", "demo", "-o", "json")
		var doc view.SessionLog
		if err := json.Unmarshal([]byte(got.out), &doc); err != nil || got.code != ExitDone {
			t.Errorf("%s: exit %d, %v: %s", name, got.code, err, got.errs)
		}
		for _, kind := range []string{"requested", "gate", "launching", "ready", "down", "ended"} {
			if !slices.ContainsFunc(doc.Events, func(e view.SessionEvent) bool { return e.Kind == kind }) {
				t.Errorf("%s the log has no %s: %+v", name, kind, doc.Events)
			}
		}
		if follow := give("logs", "demo", "-f"); follow.code != ExitDone ||
			strings.Count(follow.out, "\n") != len(doc.Events) {
			t.Errorf("%s: %d events are followed as\n%s%s", name, len(doc.Events), follow.out, follow.errs)
		}
	}
	if got := there("connect", "demo"); got.code != ExitUsage ||
		!strings.Contains(got.errs, "needs a state of this machine") {
		t.Errorf("connect: exit %d: %s", got.code, got.errs)
	}
	unchanged()
}
