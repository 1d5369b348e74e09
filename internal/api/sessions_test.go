package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/otheruser"
)

// TestMain lets this program act as the agents, cages and keepers of local sessions.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"agent", "cage", "session", "token"}, os.Args[1]) {
		os.Exit(cli.Run(context.Background(), cli.System("test")))
	}
	os.Exit(m.Run())
}

// servesLocal returns the configuration that lets a service start sessions on its machine, as the
// named Unix users.
func servesLocal(t *testing.T) string {
	t.Helper()
	one, two := otheruser.Two(t)
	return fmt.Sprintf("local: {serve: true, users: {ned: %s, olga: %s, una: %s, vera: %s}, dir: %s}", one.Name,
		two.Name,
		two.Name, one.Name, otheruser.Shared(t))
}

// sessionSettings returns the settings of tests with local sessions; serves is the line that
// permits them.
func sessionSettings(serves string) string {
	return strings.Replace(settings, "budgets:\n", "budgets:\n  - {id: people, purpose: any, amount: 10000}\n", 1) + `
sessions: {cloud: local, grace: 1s, max_lease: 24h}
rates: {source: finance, as_of: 2026-11-01, vcpu_hour: "1.80", memory_gib_hour: "0.000000001"}
` + serves + "\n"
}

// keeps runs the keeper of a service's sessions until the test ends, and then ends them.
func (s *service) keeps() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.tb.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := sessions.Keep(ctx, s.req.Fresh(), true); err != nil && ctx.Err() == nil {
				slog.New(slog.NewTextHandler(s.log, nil)).Warn("sessions are not kept", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	s.tb.Cleanup(func() {
		defer func() { cancel(); wg.Wait() }()
		all, err := sessions.Open(ctx, s.req.Fresh())
		if err != nil {
			s.tb.Error(err)
			return
		}
		defer all.Close()
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			names, err := all.OpenNames(ctx)
			if err != nil || time.Now().After(end) {
				s.tb.Errorf("sessions stay: %v, %v\n%s", names, err, s.log)
				return
			}
			if len(names) == 0 {
				return
			}
			for _, name := range names {
				if _, err := all.Down(ctx, name, true); err != nil {
					s.tb.Error(err)
				}
			}
		}
	})
}

// run returns the only session of a response.
func run(t *testing.T, a answered) view.Run {
	t.Helper()
	var doc view.Runs
	body := a.body
	if a.status >= 400 { // the session may exist all the same
		var p struct{ Document json.RawMessage }
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatalf("%d %s: %v", a.status, a.body, err)
		}
		body = string(p.Document)
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil || len(doc.Runs) != 1 || doc.Schema != view.RunsSchema {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return doc.Runs[0]
}

// becomes waits for a state of a session.
func (s *service) becomes(t *testing.T, name string, states ...string) view.Run {
	t.Helper()
	var r view.Run
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r = run(t, s.call("ada", "GET", "/api/v1/sessions/"+name, "")); slices.Contains(states, r.State) {
			return r
		}
	}
	t.Fatalf("session %s is %+v, want %v\n%s", name, r, states, s.log)
	return r
}

// TestSessionsAsOtherUsers checks that a session requested through the API is launched, kept,
// extended and ended by the service, with the caller's name, by role, and once per idempotency key.
func TestSessionsAsOtherUsers(t *testing.T) {
	s := start(t, strings.Replace(sessionSettings(servesLocal(t)), "  bo: {", "  una: {roles: [user]}\n  bo: {", 1),
		true,
		nil)
	s.keeps()
	up := `{"name":"demo","cpus":1,"lease":"2h","idle":"1h"}`
	first := s.call("ned", "POST", "/api/v1/sessions", up, with("Idempotency-Key", "k1"))
	made := run(t, first)
	if first.status != 200 || made.AskedBy != "ned" || made.Owner.User != "ned" || made.Gate == nil ||
		made.Gate.Decision != "allow" || made.HoldID == "" || made.Provider != "local" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if again := s.call("ned", "POST", "/api/v1/sessions", up,
		with("Idempotency-Key", "k1")); again.body != first.body ||
		again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the same key: %d %s", again.status, again.body)
	}
	ready := s.becomes(t, "demo", "ready", "failed", "ended")
	if ready.State != "ready" || ready.ID != made.ID || len(ready.Hosts) != 1 {
		t.Fatalf("%+v\n%s", ready, s.log)
	}
	if attached := run(t, s.call("ned", "POST", "/api/v1/sessions", `{"name":"demo"}`)); attached.ID != made.ID {
		t.Errorf("asked for again: %+v", attached)
	}
	if got := s.call("ned", "POST", "/api/v1/sessions", `{"name":"demo","cpus":1,"nodes":2}`); got.status != 409 ||
		got.code() != "other_session" {
		t.Errorf("another under its name: %d %s", got.status, got.body)
	}
	for _, who := range []string{"vi", "una"} { // callers who may see it
		if got := run(t, s.call(who, "GET", "/api/v1/sessions/"+made.ID+"?hosts=false", "")); got.Name != "demo" ||
			len(got.Hosts) > 0 {
			t.Errorf("%s sees %+v", who, got)
		}
	}
	for path, body := range map[string]string{
		"/api/v1/sessions/demo/extend": `{"for":"1h"}`, "/api/v1/sessions/demo/down": `{}`,
		"/api/v1/sessions": `{"name":"demo"}`,
	} {
		if got := s.call("una", "POST", path, body); got.status != 403 || got.code() != "not_yours" {
			t.Errorf("another user: %s: %d %s", path, got.status, got.body)
		}
		if got := s.call("vi", "POST", path, body); got.status != 403 || got.code() != "forbidden" {
			t.Errorf("a viewer: %s: %d %s", path, got.status, got.body)
		}
	}
	var yours view.Runs
	if err := json.Unmarshal([]byte(s.call("una", "GET", "/api/v1/sessions?yours=true", "").body),
		&yours); err != nil ||
		len(yours.Runs) != 0 {
		t.Errorf("those of another user: %+v, %v", yours, err)
	}
	for _, who := range []string{"ned", "olga"} { // the own session, and as an operator
		before := run(t, s.call("vi", "GET", "/api/v1/sessions/demo", ""))
		longer := run(t, s.call(who, "POST", "/api/v1/sessions/demo/extend", `{"for":"1h"}`))
		if got := longer.LeaseUntil.Sub(before.LeaseUntil); got != time.Hour || longer.Gate == nil {
			t.Errorf("%s extends it by %s: %+v", who, got, longer)
		}
	}
	if got := s.call("ned", "POST", "/api/v1/sessions/demo/extend", `{"for":"48h"}`); got.status != 403 ||
		got.code() != "lease_policy" {
		t.Errorf("longer than the policy: %d %s", got.status, got.body)
	}
	if got := s.call("ned", "POST", "/api/v1/sessions/demo/extend", `{"for":"soon"}`); got.status != 400 {
		t.Errorf("no duration: %d %s", got.status, got.body)
	}
	if ending := run(t, s.call("ned", "POST", "/api/v1/sessions/demo/down", `{}`)); ending.ID != made.ID ||
		ending.Why != "asked for by ned" {
		t.Errorf("%+v", ending)
	}
	if ended := s.becomes(t, "demo", "ended", "failed"); ended.State != "ended" || ended.Checkpoint == nil {
		t.Errorf("%+v", ended)
	}
	s.journal(t)
	var none view.Runs
	if err := json.Unmarshal([]byte(s.call("vi", "GET", "/api/v1/sessions", "").body), &none); err != nil ||
		len(none.Runs) != 0 {
		t.Errorf("open ones: %+v, %v", none, err)
	}
	if got := s.call("ned", "POST", "/api/v1/sessions/demo/extend", `{"for":"1h"}`); got.status != 409 ||
		got.code() != "over" {
		t.Errorf("extend what is over: %d %s", got.status, got.body)
	}
	if got := s.call("vi", "GET", "/api/v1/sessions/nosuch", ""); got.status != 404 || got.code() != "no_session" {
		t.Errorf("%d %s", got.status, got.body)
	}
	audit := s.call("vi", "GET", "/api/v1/audit?what=session", "").body
	if strings.Count(audit, `"actor": "ned"`) < 3 || strings.Count(audit, `"asked for"`) != 1 ||
		!strings.Contains(audit, `"actor": "olga"`) && !strings.Contains(audit, "(olga)") {
		t.Errorf("the audit log:\n%s", audit)
	}
	// Starting it again continues its name and work.
	if next := run(t, s.call("ned", "POST", "/api/v1/sessions", `{"name":"demo"}`)); next.Epoch != made.Epoch+1 ||
		next.ID == made.ID {
		t.Errorf("%+v", next)
	}
}

// journal compares the pages of a log with the whole.
func (s *service) journal(t *testing.T) {
	t.Helper()
	var whole, parts view.SessionLog
	if err := json.Unmarshal([]byte(s.call("vi", "GET", "/api/v1/sessions/demo/log?limit=1000", "").body),
		&whole); err != nil {
		t.Fatal(err)
	}
	for cursor := ""; ; {
		got := s.call("vi", "GET", "/api/v1/sessions/demo/log?limit=3&cursor="+url.QueryEscape(cursor), "")
		var page view.SessionLog
		if err := json.Unmarshal([]byte(got.body), &page); err != nil || got.status != 200 || len(page.Events) > 3 {
			t.Fatalf("%d %s: %v", got.status, got.body, err)
		}
		parts.Events = append(parts.Events, page.Events...)
		if cursor = got.header.Get("Next-Cursor"); cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(whole.Events, parts.Events); diff != "" {
		t.Errorf("the whole log -, its pages +\n%s", diff)
	}
	order := []string{}
	for _, want := range []string{"requested", "gate", "launching", "ready", "extended", "down", "ended"} {
		if i := slices.IndexFunc(whole.Events, func(e view.SessionEvent) bool { return e.Kind == want }); i >= 0 {
			order = append(order, fmt.Sprintf("%03d %s", i, want))
		} else {
			t.Errorf("no %s in the log", want)
		}
	}
	if !slices.IsSorted(order) {
		t.Errorf("the log is in the order %v: %+v", order, whole.Events)
	}
}

// TestOtherUsersSessionsNeedApproval checks that the response says so, with the session, and
// that it starts after approval.
func TestOtherUsersSessionsNeedApproval(t *testing.T) {
	yaml := strings.Replace(sessionSettings(servesLocal(t)), "gate: {ask_over: 1000000}", "gate: {ask_over: 0.01}", 1)
	s := start(t, yaml, true, nil)
	s.keeps()
	up := `{"name":"costly","cpus":1,"lease":"2h"}`
	got := s.call("ned", "POST", "/api/v1/sessions", up)
	held := run(t, got)
	var p struct{ Exit int }
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 409 ||
		got.code() != "needs_approval" ||
		p.Exit != 3 || held.State != "requested" || held.Gate == nil || held.Gate.Decision != "ask" ||
		held.ApprovalID == "" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if again := run(t, s.call("ned", "POST", "/api/v1/sessions", up)); again.ID != held.ID ||
		again.ApprovalID != held.ApprovalID {
		t.Errorf("asked for again: %+v", again)
	}
	if got := s.call("ned", "POST", "/api/v1/approvals/"+held.ApprovalID+"/approve", `{}`); got.status != 403 {
		t.Errorf("who asked approves: %d %s", got.status, got.body)
	}
	if got := s.call("bo", "POST", "/api/v1/approvals/"+held.ApprovalID+"/approve", `{}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if r := run(t, s.call("ned", "POST", "/api/v1/sessions", up)); r.ID != held.ID || r.Gate == nil ||
		r.Gate.Decision != "allow" {
		t.Errorf("approved: %+v", r)
	}
	s.becomes(t, "costly", "ready")
}

// TestTeamSessionsAsOtherUsers checks that a role in one team applies only to its sessions.
func TestTeamSessionsAsOtherUsers(t *testing.T) {
	// Nothing is launched: without a price the gate asks.
	s := start(t, settings+"sessions: {cloud: local}\n"+servesLocal(t)+"\n", true, nil)
	file := func(team string) string {
		text, _ := json.Marshal(map[string]any{
			"name": "demo",
			"content": "apiVersion: curfew.session/v1\nname: x\nresources: {cpus: 1}\nlease: 1h\nowner: {team: " +
				team + "}\n",
			"file": "demo.yaml",
		})
		return string(text)
	}
	for body, want := range map[string]string{
		`{"name":"demo","cpus":1}`: "of no team", file("speech"): "of the team speech",
	} {
		if got := s.call("vera", "POST", "/api/v1/sessions", body); got.status != 403 ||
			!strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if got := s.call("vera", "POST", "/api/v1/sessions", file("vision")); got.status != 409 ||
		run(t, got).Owner.Team != "vision" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for path, want := range map[string]int{"": 404, "/log": 404} {
		if got := s.call("sam", "GET", "/api/v1/sessions/demo"+path, ""); got.status != want {
			t.Errorf("sam reads %s: %d %s", path, got.status, got.body)
		}
	}
	for path, body := range map[string]string{"/demo/extend": `{"for":"1h"}`, "/demo/down": `{}`} {
		if got := s.call("sam", "POST", "/api/v1/sessions"+path, body); got.status != 404 {
			t.Errorf("sam, %s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.call("sam", "POST", "/api/v1/sessions", file("speech")); got.status != 403 ||
		got.code() != "not_yours" {
		t.Errorf("sam takes the name: %d %s", got.status, got.body)
	}
	if got := s.call("sam", "GET", "/api/v1/sessions", ""); got.status != 200 || strings.Contains(got.body, "demo") {
		t.Errorf("sam lists %d %s", got.status, got.body)
	}
	if got := s.call("vera", "GET", "/api/v1/sessions", ""); !strings.Contains(got.body, `"name": "demo"`) {
		t.Errorf("vera lists %d %s", got.status, got.body)
	}
	if got := run(t, s.call("vera", "POST", "/api/v1/sessions/demo/down", `{}`)); got.Why != "asked for by vera" {
		t.Errorf("%+v", got)
	}
}

// TestRefusesLocalSessions checks that without local.serve the API neither starts, extends nor
// restarts sessions on the service's machine, but shows and ends existing ones.
func TestRefusesLocalSessions(t *testing.T) {
	s := start(t, sessionSettings(""), true, nil)
	s.keeps()
	for _, body := range []string{
		`{"name":"demo","cpus":1}`, `{"name":"demo","cpus":1,"cloud":"local"}`, `{"name":"demo"}`,
	} {
		if got := s.call("ada", "POST", "/api/v1/sessions", body); got.status != 403 ||
			got.code() != "local_not_served" {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if got := s.call("ada", "GET", "/api/v1/sessions?all=true", ""); !strings.Contains(got.body, `"runs": []`) {
		t.Errorf("recorded: %s", got.body)
	}
	// A session of the user of this machine.
	own := *s.req.Process
	own.Storage = runtime.OwnStorage{}
	req := own.Request()
	req.Caller = runtime.ServedCaller(approval.Person{
		Name: "ned", Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: "ned"},
	})
	all, err := sessions.Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	demo := sessions.UpOptions{Name: "demo", SpecOptions: sessions.SpecOptions{CPUs: 1}, Lease: time.Hour}
	if _, d, err := all.Up(t.Context(), demo); err != nil || d == nil || d.Decision != gate.Allow {
		t.Fatalf("%+v, %v", d, err)
	}
	s.becomes(t, "demo", "ready")
	for path, body := range map[string]string{"/demo/extend": `{"for":"1h"}`, "": `{"name":"demo"}`} {
		if got := s.call("ned", "POST", "/api/v1/sessions"+path, body); got.status != 403 ||
			got.code() != "local_not_served" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.call("ned", "POST", "/api/v1/sessions/demo/down", `{"discard":true}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.becomes(t, "demo", "ended")
}

// TestPeopleWithoutOtherUser checks that a person without a Unix user in local.users cannot start
// sessions on the service's machine, and no one can as root or as a missing user.
func TestPeopleWithoutOtherUser(t *testing.T) {
	one := otheruser.One(t)
	s := start(t,
		sessionSettings(fmt.Sprintf("local: {serve: true, users: {ned: %s, olga: no-such-user, una: daemon}, dir: %s}",
			one.Name, otheruser.Shared(t))), true, nil)
	for who, why := range map[string]string{
		"ada": "local.users names no Unix user", "olga": "there is no Unix user no-such-user",
	} {
		if got := s.call(who, "POST", "/api/v1/sessions", `{"name":"demo","cpus":1}`); got.status != 403 ||
			got.code() != "no_local_user" || !strings.Contains(got.body, why) {
			t.Errorf("%s: %d %s", who, got.status, got.body)
		}
	}
	if got := s.call("vi", "GET", "/api/v1/sessions?all=true", ""); !strings.Contains(got.body, `"runs": []`) {
		t.Errorf("recorded: %s", got.body)
	}
	if got := run(t, s.call("ned", "POST", "/api/v1/sessions", `{"name":"demo","cpus":1}`)); got.RunAs != one.Name {
		t.Errorf("ned's runs as %q", got.RunAs)
	}
}

// TestServiceNeedsRootForSessions checks that a service that cannot change its user neither
// starts nor extends sessions on its machine, whatever its configuration says.
func TestServiceNeedsRootForSessions(t *testing.T) {
	if os.Geteuid() == 0 {
		one := otheruser.One(t)
		c := one.Command(t.Context(), nil, otheruser.Program(t, "/proc/self/exe"),
			"-test.run=^TestServiceNeedsRootForSessions$", "-test.v")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("as %s: %v\n%s", one.Name, err, out)
		}
		return
	}
	s := start(t, sessionSettings("local: {serve: true, users: {ned: daemon}}"), true, nil)
	for path, body := range map[string]string{
		"": `{"name":"demo","cpus":1}`, "?": `{"name":"demo","cpus":1,"cloud":"local"}`,
	} {
		if got := s.call("ned", "POST", "/api/v1/sessions"+path, body); got.status != 403 ||
			got.code() != "local_not_root" {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

// TestOtherUsersSessionIsIsolated checks that a session runs as the person's Unix user without
// access to the service, that it is saved and restored, and that by stopping its agent and forging
// reports it cannot keep itself or another session from ending.
func TestOtherUsersSessionIsIsolated(t *testing.T) {
	t.Setenv("CURFEW_OIDC_SECRET", "hush")
	one, two := otheruser.Two(t)
	dir := otheruser.Shared(t)
	local := fmt.Sprintf("local: {serve: true, users: {ned: %s, una: %s}, dir: %s}", one.Name, two.Name, dir)
	s := start(t, strings.Replace(sessionSettings(local), "  bo: {", "  una: {roles: [user]}\n  bo: {", 1), true, nil)
	s.keeps()
	state, err := filepath.Abs(s.req.Path(s.req.DataFlag))
	if err != nil {
		t.Fatal(err)
	}
	program := otheruser.Program(t, "/proc/self/exe")
	setup := strings.Join([]string{
		"[ -e file ] || { echo kept > file; ln -s " + state + "/curfew.db link; }",
		"echo user $(id -un)",
		program + " token create --name evil --role admin --data-dir " + state + " && echo reached token",
		"cat " + state + "/curfew.db && echo reached state",
		"ls " + state + " && echo reached folder",
		"echo x > " + state + "/sessions/x && echo reached sessions",
		fmt.Sprintf("cat /proc/%d/environ && echo reached environ", os.Getpid()),
		fmt.Sprintf("kill -STOP %d && echo reached service", os.Getpid()),
		"env | grep -c hush && echo reached secret",
		"true",
	}, "; ")
	file, _ := json.Marshal(map[string]any{
		"name": "demo", "file": "demo.yaml",
		"content": "apiVersion: curfew.session/v1\nname: x\nresources: {cpus: 1}\nlease: 2h\nsetup: " + strconv.Quote(
			setup) + "\n",
	})
	run(t, s.call("ned", "POST", "/api/v1/sessions", string(file)))
	s.becomes(t, "demo", "ready")
	var log view.SessionLog
	eventually(t, func() bool {
		err := json.Unmarshal([]byte(s.call("ned", "GET", "/api/v1/sessions/demo/log?limit=1000", "").body), &log)
		return err == nil && slices.ContainsFunc(log.Events, func(e view.SessionEvent) bool {
			return e.Text == "setup: done"
		})
	})
	text, _ := json.Marshal(log)
	if !strings.Contains(string(text), "user "+one.Name) || strings.Contains(string(text), "reached") ||
		strings.Contains(string(text), "hush") {
		t.Fatalf("%s", text)
	}
	// Saved and restored by its user, with the link as a link.
	if got := s.call("ned", "POST", "/api/v1/sessions/demo/down", `{}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if ended := s.becomes(t, "demo", "ended", "failed"); ended.State != "ended" || ended.Checkpoint == nil ||
		ended.Lost != "" {
		t.Fatalf("%+v", ended)
	}
	if out, code := one.Sh(t, "find "+dir+"/work-"+one.Name+" ! -user "+one.Name); code != 0 || out != "" {
		t.Errorf("of its snapshots another's are %q", out)
	}
	if out, code := two.Sh(t, "ls "+dir+"/work-"+one.Name); code == 0 {
		t.Errorf("another user lists its snapshots: %q", out)
	}
	run(t, s.call("ned", "POST", "/api/v1/sessions", `{"name":"demo"}`))
	again := s.becomes(t, "demo", "ready")
	home := filepath.Join(dir, again.ID, again.ResourceIDs[0], "home", "work")
	if out, code := one.Sh(t, "cat "+home+"/file; readlink "+home+"/link; stat -c %U "+home+"/file"); code != 0 ||
		out != "kept\n"+state+"/curfew.db\n"+one.Name {
		t.Errorf("restored: %q", out)
	}
	// It stops its agent and forges reports.
	run(t, s.call("una", "POST", "/api/v1/sessions", `{"name":"calm","cpus":1,"lease":"2h"}`))
	s.becomes(t, "calm", "ready")
	lie, _ := json.Marshal(map[string]any{
		"schema": "curfew.session-status/v1", "session": again.ID, "node": 0, "epoch": again.Epoch, "phase": "ready",
		"at": time.Now().UTC(), "events": int64(math.MaxInt64),
	})
	if out, code := one.Sh(t,
		fmt.Sprintf("kill -STOP $(pgrep -u %d -f '[a]gent host'); echo '%s' > %s/control/status-0.json", one.UID, lie,
			filepath.Join(dir, again.ID))); code != 0 {
		t.Fatal(out)
	}
	eventually(t, func() bool {
		return strings.Contains(run(t, s.call("ada", "GET", "/api/v1/sessions/demo", "")).Wrong, "node 0: events")
	})
	run(t, s.call("una", "POST", "/api/v1/sessions/calm/down", `{}`))
	if ended := s.becomes(t, "calm", "ended", "failed"); ended.State != "ended" {
		t.Errorf("the other: %+v", ended)
	}
	run(t, s.call("ned", "POST", "/api/v1/sessions/demo/down", `{"discard":true}`))
	if ended := s.becomes(t, "demo", "ended", "failed"); ended.State != "ended" {
		t.Errorf("%+v", ended)
	}
	if out, _ := one.Sh(t, "pgrep -f '[a]gent host .*"+again.ID+"'"); out != "" {
		t.Errorf("its agent is left: %s", out)
	}
	if got := s.call("ada", "GET", "/api/v1/tokens", ""); strings.Contains(got.body, "evil") {
		t.Errorf("%s", got.body)
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s", patience)
		}
	}
}
