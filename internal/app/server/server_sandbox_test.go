package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	"github.com/aws/aws-sdk-go-v2/service/organizations/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// patience is how long these tests wait, on a machine under load.
const patience = 3 * time.Minute

// running is a service with a sandbox of AWS.
type running struct {
	t     *testing.T
	box   *sandbox.Sandbox
	log   *lines
	state *store.Store
	req   *runtime.Request
	url   string
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// box starts a sandbox and points the SDK to it.
func box(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	b, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, e := range b.Env() {
		k, v, _ := strings.Cut(e, "=")
		t.Setenv(k, v)
	}
	return b
}

// serve serves a sandbox until the test ends.
func serve(t *testing.T, b *sandbox.Sandbox, yaml string) *running {
	t.Helper()
	return serveAs(t, b, yaml, false)
}

// serveAs serves a sandbox until the test ends, and acts on it if enforce is true.
func serveAs(t *testing.T, b *sandbox.Sandbox, yaml string, enforce bool) *running {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "curfew.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, box: b, log: &lines{}}
	req := runtime.NewProcess(runtime.Host{
		Now: time.Now, Lookup: os.LookupEnv, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Log: r.log,
	}).Request()
	req.ConfigFlag, req.DataFlag = file, filepath.Join(dir, "state")
	ctx, stop := context.WithCancel(t.Context())
	mounted, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, req, ServeOptions{
			EnforceOptions: act.EnforceOptions{Source: clouds.Source{Cloud: "aws"}, Enforce: enforce},
			Listen:         "127.0.0.1:0", Out: io.Discard,
			Mount: func(req *runtime.Request, s *store.Store, _ config.Config, _ *slog.Logger) (Mounted, error) {
				r.state, r.req = s, req
				close(mounted)
				return Mounted{Known: func(*http.Request) bool { return true }}, nil
			}})
	}()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the service does not end")
		}
		if t.Failed() {
			t.Logf("the log:\n%s", r.log)
		}
	})
	select {
	case <-mounted:
	case err := <-ended:
		t.Fatalf("it does not serve: %v\n%s", err, r.log)
	case <-time.After(patience):
		t.Fatal("it does not serve")
	}
	r.until("it listens", func() (bool, string) {
		if m := listening.FindStringSubmatch(r.log.String()); m != nil {
			r.url = "http://" + m[1]
		}
		return r.url != "", ""
	})
	return r
}

// until waits for a condition, which also returns what it observed.
func (r *running) until(what string, holds func() (bool, string)) {
	r.t.Helper()
	var seen string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if ok, seen = holds(); ok {
			return
		}
	}
	r.t.Fatalf("waited %s until %s: %s\nthe log:\n%s", patience, what, seen, r.log)
}

// ready returns the answer of /readyz.
func (r *running) ready() (status int, doc scheduler.Readiness) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+"/readyz", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, doc
}

// events returns the audit entries about findings and backtests.
func (r *running) events(prefix string) []string {
	r.t.Helper()
	out := []string{}
	if err := govern.Entries(r.t.Context(), r.req.Fresh(), action.Query{}, func(e view.AuditEntry) error {
		if strings.HasPrefix(e.What, prefix) {
			out = append(out, e.What+" "+e.Because+" "+e.Resource)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// TestServeAudits checks that only audits add and resolve findings, with their times and an event
// for each change, while rounds continue.
func TestServeAudits(t *testing.T) {
	b := box(t)
	api := ec2.NewFromConfig(b.Config("us-east-1"))
	allocated, err := api.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{})
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, b, "aws: {requests_per_second: 10000}\nserve: {interval: 1s, audit_interval: 2s}\n")
	of := func() (view.DatedFinding, bool) {
		doc, err := audit.Findings(t.Context(), r.req.Fresh())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(doc.Findings, func(f view.DatedFinding) bool {
			return f.Resource.ID == *allocated.AllocationId
		})
		if i < 0 {
			return view.DatedFinding{}, false
		}
		return doc.Findings[i], true
	}
	r.until("the address is found", func() (bool, string) {
		_, ok := of()
		return ok, ""
	})
	first, _ := of()
	r.until("it is found again", func() (bool, string) {
		now, ok := of()
		return ok && now.LastAt.After(first.LastAt) && now.FirstAt.Equal(first.FirstAt), fmt.Sprintf("%+v", now)
	})
	_, before := r.ready()
	if _, err := api.ReleaseAddress(t.Context(), &ec2.ReleaseAddressInput{
		AllocationId: allocated.AllocationId,
	}); err !=
		nil {
		t.Fatal(err)
	}
	r.until("it has ended", func() (bool, string) {
		f, ok := of()
		return !ok, fmt.Sprintf("%+v", f)
	})
	about := "address-unused aws/" + wire.DefaultAccount + "/us-east-1/address/" + *allocated.AllocationId
	got := slices.DeleteFunc(r.events("finding-"), func(e string) bool { return !strings.HasSuffix(e, about) })
	if want := []string{"finding-new " + about, "finding-ended " + about}; !slices.Equal(got, want) {
		t.Errorf("events %q of %q, want %q", got, r.events("finding-"), want)
	}
	status, after := r.ready()
	if status != http.StatusOK || len(after.Sources) != 2 || after.Sources[0].Source != "audit aws" ||
		!after.Sources[0].Background || after.Sources[1].Source != "aws" {
		t.Errorf("%d: %+v", status, after)
	}
	if len(before.Sources) != 2 || !after.Sources[1].ReadAt.After(before.Sources[1].ReadAt) {
		t.Errorf("no round next to the audits: %+v, then %+v", before.Sources, after.Sources)
	}
	if last, err := r.state.Audited(t.Context(), "audit aws"); err != nil || time.Since(last) > patience {
		t.Errorf("audited at %s, %v", last, err)
	}
	// Passes of the service read no bucket, but its audits do and store what they saw.
	if fleet, err := audit.Resources(t.Context(), r.req.Fresh()); err != nil || fleet.Schema == "" {
		t.Errorf("%+v, %v", fleet, err)
	}
}

// TestServesOrganization checks that every active account is a source, that joining and leaving
// accounts are followed while the others continue, and that an account whose role is denied backs
// off and is named.
func TestServesOrganization(t *testing.T) {
	b := box(t)
	org := organizations.NewFromConfig(b.Config("us-east-1"))
	if _, err := org.CreateOrganization(t.Context(), &organizations.CreateOrganizationInput{
		FeatureSet: types.OrganizationFeatureSetAll,
	}); err != nil {
		t.Fatal(err)
	}
	create := func(n int) string {
		t.Helper()
		out, err := org.CreateAccount(t.Context(), &organizations.CreateAccountInput{
			AccountName: awssdk.String(fmt.Sprint("team-", n)),
			Email:       awssdk.String(fmt.Sprintf("team-%d@example.com", n)),
			RoleName:    awssdk.String("curfew-read"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return *out.CreateAccountStatus.AccountId
	}
	good, bad, out := create(1), create(2), create(3)
	role := func(id string) string { return "arn:aws:iam::" + id + ":role/curfew-read" }
	// Create a machine in a member account, which only its own source can see.
	there := b.Config("us-east-1")
	there.Credentials = awssdk.NewCredentialsCache(
		stscreds.NewAssumeRoleProvider(sts.NewFromConfig(b.Config("us-east-1")), role(good)))
	if _, err := ec2.NewFromConfig(there).AllocateAddress(t.Context(), &ec2.AllocateAddressInput{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Wire.Inject(wire.Fault{Account: bad, Kind: wire.AccessDenied}))
	r := serve(t, b,
		"aws: {requests_per_second: 10000, organization: {role: curfew-read, refresh: 1s, exclude: ['"+out+
			"']}}\nserve: {interval: 1s, skip_audits: true}\n")
	source := func(id string) string { return "aws/" + id + ":role/curfew-read" }
	expect := func(what string, want ...string) map[string]scheduler.Status {
		t.Helper()
		slices.Sort(want)
		of := map[string]scheduler.Status{}
		r.until(what, func() (bool, string) {
			status, doc := r.ready()
			clear(of)
			var names []string
			read := true
			for _, s := range doc.Sources {
				names = append(names, s.Source)
				of[s.Source] = s
				read = read && (!s.ReadAt.IsZero() || s.Failures > 0)
			}
			return slices.Equal(names, want) && read && status == http.StatusOK, fmt.Sprintf("%d %+v", status, doc)
		})
		return of
	}
	of := expect("the accounts are read", "aws", source(good), source(bad))
	if s := of[source(bad)]; s.Problem == "" || !strings.Contains(s.Problem, role(bad)) || !s.ReadAt.IsZero() {
		t.Errorf("the denied account: %+v", s)
	}
	r.until("its failures are counted", func() (bool, string) {
		_, doc := r.ready()
		for _, s := range doc.Sources {
			if s.Source == source(bad) && s.Failures >= 2 {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", doc)
	})
	if n := strings.Count(r.log.String(), `source=aws/`+bad); n == 0 {
		t.Error("the log does not name it")
	}
	added := create(4)
	expect("a new account is read", "aws", source(good), source(bad), source(added))
	if _, err := org.CloseAccount(t.Context(), &organizations.CloseAccountInput{AccountId: &added}); err != nil {
		t.Fatal(err)
	}
	expect("a closed account is left out", "aws", source(good), source(bad))
	// A failed listing changes nothing and is reported.
	heal := b.Wire.Inject(wire.Fault{Service: "organizations", Kind: wire.AccessDenied})
	r.until("the list is denied", func() (bool, string) {
		_, doc := r.ready()
		return len(doc.Problems) == 1, fmt.Sprintf("%+v", doc)
	})
	expect("the accounts stay", "aws", source(good), source(bad))
	heal()
	accounts, err := audit.Accounts(t.Context(), r.req.Fresh())
	if err != nil || !slices.ContainsFunc(accounts.Accounts, func(a view.Account) bool { return a.Account == good }) ||
		slices.ContainsFunc(accounts.Accounts, func(a view.Account) bool {
			return a.Account == out || a.Account == bad
		}) {
		t.Errorf("observed: %+v, %v", accounts, err)
	}
	if n := b.Wire.Recorder.Count("sts:AssumeRole"); n > 100 {
		t.Errorf("%d roles were assumed: sources that stay are opened again", n)
	}
}

// TestServeRecordsAndReplays checks that a backtest from CloudWatch records the history of the
// running machines and replays it.
func TestServeRecordsAndReplays(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
	b := box(t)
	account, err := b.SeedLadder(t.Context(), "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, b, "aws: {requests_per_second: 10000}\nserve: {interval: 1m, skip_audits: true}\nidentity: root\n")
	doc, err := replay.CreateBacktest(t.Context(), r.req.Fresh(), view.BacktestAsked{
		From: replay.FromCloud, Since: "6h", Step: "1m", RestartCost: "5m", Baselines: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := doc.Backtests[0].ID
	r.until("it is done", func() (bool, string) {
		doc, err := replay.Backtest(t.Context(), r.req.Fresh(), id)
		if err != nil {
			t.Fatal(err)
		}
		return doc.Backtests[0].State == "done" || doc.Backtests[0].State == "failed", fmt.Sprintf("%+v", doc)
	})
	raw, err := replay.BacktestResult(t.Context(), r.req.Fresh(), id)
	var result struct {
		Schema string
		Trace  struct {
			Name      string
			Resources int
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &result)
	}
	if err != nil || result.Schema != view.BacktestSchema || result.Trace.Name != replay.FromCloud ||
		result.Trace.Resources < len(account.IDs)/2 {
		t.Errorf("%+v of %d machines, %v: %.500s", result, len(account.IDs), err, raw)
	}
}

// TestServedSessionsUseNewConfiguration checks that a service keeps sessions with a reloaded
// configuration, and with the previous one if the newer one is invalid: if nothing can be launched,
// the session names the searched region.
func TestServedSessionsUseNewConfiguration(t *testing.T) {
	const yaml = "aws: {regions: [us-east-1]}\nserve: {skip_audits: true}\nsessions: {regions: [%s]}\n"
	r := serve(t, box(t), fmt.Sprintf(yaml, "us-east-1"))
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.req.ConfigFlag, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := func() string { return r.log.String() }
	looked := func(id, region string) {
		t.Helper()
		sp, err := spec.Parse(id,
			[]byte("apiVersion: curfew.session/v1\nname: "+id+"\nresources: {instance_type: g6.xlarge}\nlease: 1h\n"))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		s := session.Session{
			ID: id, Name: id, RequestedBy: "ana", Provider: clouds.ProviderAWS, Account: wire.DefaultAccount,
			Spec: sp.Canonical(),
			Hash: sp.Hash(), Epoch: 1, State: session.Launching, RequestedAt: now, LeaseUntil: now.Add(time.Hour),
		}
		before := len(said())
		if _, err := r.state.Sessions().Put(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
		r.until("session "+id+" is looked at in "+region, func() (bool, string) {
			now, err := r.state.Sessions().Session(t.Context(), id)
			text := now.Why + now.EndReason
			for line := range strings.Lines(said()[before:]) {
				if strings.Contains(line, "session="+id) {
					text += line
				}
			}
			return err == nil && strings.Contains(text, region), fmt.Sprint(err, text)
		})
	}
	looked("s1", "us-east-1")
	write(fmt.Sprintf(yaml, "us-west-2"))
	r.until("it is read again", func() (bool, string) {
		return strings.Contains(said(), "the configuration is read again"), ""
	})
	looked("s2", "us-west-2")
	write("sessions: {regions: [eu-west-1], no_such_key: 1}\n")
	r.until("it is not taken", func() (bool, string) {
		return strings.Contains(said(), "the one before stays in force"), ""
	})
	looked("s3", "us-west-2")
	// The service also answers its callers with it.
	if cfg, err := r.req.Fresh().Config(); err != nil || !slices.Equal(cfg.Sessions.Regions, []string{"us-west-2"}) {
		t.Errorf("sessions.regions are %v, %v", cfg.Sessions.Regions, err)
	}
	// A freeze works, and is shown.
	if _, err := act.Freeze(t.Context(), r.req.Fresh(), "an incident", true); err != nil {
		t.Error(err)
	}
	r.until("the freeze is shown", func() (bool, string) {
		_, doc := r.ready()
		return doc.Frozen && strings.Contains(doc.Freeze, "an incident") &&
			strings.Contains(said(), "all actions are frozen"), fmt.Sprintf("%+v", doc)
	})
	if _, err := act.Freeze(t.Context(), r.req.Fresh(), "over", false); err != nil {
		t.Error(err)
	}
	r.until("its end is shown", func() (bool, string) {
		_, doc := r.ready()
		return !doc.Frozen && strings.Contains(said(), "actions are allowed again"), fmt.Sprintf("%+v", doc)
	})
}
