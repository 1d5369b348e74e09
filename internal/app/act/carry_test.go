package act_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// fixWorld is a served simulated account with an audit.
type fixWorld struct {
	t       *testing.T
	world   *simulation.World
	process *runtime.Process
	scan    view.Scan
	setting func() round.Setting
	carrier *act.Carrier
}

func newFixWorld(t *testing.T) *fixWorld {
	t.Helper()
	req := apptest.Request(t, "approvals: {accept: [self-declared]}\n")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulation.New(t.Context(), 1, cfg.Tags, apptest.Now, apptest.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	people := &sim.People{}
	process := *req.Process
	process.Storage, process.Now = runtime.LentStorage{State: w.Store}, w.Clock.Now
	setting := func(cfg config.Config) (round.Setting, error) {
		setting, err := simulation.Setting(req, cfg, w)
		setting.Ladder = func(account string) *action.Ladder { return w.Ladder(account, people) }
		return setting, err
	}
	process.Simulated = &runtime.SimulatedAccount{Actions: w.Cloud.Actions(w.Clock.Now), Setting: setting}
	f := &fixWorld{t: t, world: w, process: &process, setting: func() round.Setting {
		s, err := setting(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}
	f.carrier = &act.Carrier{Process: f.process, Store: w.Store, Log: slog.New(slog.DiscardHandler)}
	audited := f.setting()
	audited.Ladder = nil
	if err := audit.SetAudit(req, cfg, &audited, sim.CloudName, nil); err != nil {
		t.Fatal(err)
	}
	result, err := round.New(audited).Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.scan = view.NewScan(result, view.ScanOptions{})
	if err := audit.SaveScan(t.Context(), w.Store, result, f.scan, cfg.Tags, false); err != nil {
		t.Fatal(err)
	}
	return f
}

// fix asks for the fix of the first finding of a rule, as the person bo of a service, and returns its
// action.
func (f *fixWorld) fix(rule string) action.Item {
	f.t.Helper()
	i := slices.IndexFunc(f.scan.Findings, func(x view.Finding) bool { return x.Rule == rule })
	if i < 0 {
		f.t.Fatalf("there is no finding %s", rule)
	}
	req := f.process.Request()
	req.Caller = runtime.ServedCaller(approval.Person{
		Name: "bo", Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: "bo"},
	})
	id := f.scan.Findings[i].ID
	err := act.Fix(f.t.Context(), req, []string{id}, act.FixOptions{Grace: 30 * time.Minute, Scratch: true},
		func(doc view.Fixes) error { f.t.Logf("%+v", doc.Lines); return nil })
	if err != nil {
		f.t.Fatalf("%#v", err)
	}
	return f.item(id)
}

// item returns the open or newest action of a finding.
func (f *fixWorld) item(id string) action.Item {
	f.t.Helper()
	items, err := f.world.Store.Actions().Items(f.t.Context(), account, action.ItemQuery{
		Sources: []string{round.FindingSource(id)},
	})
	if err != nil || len(items) != 1 {
		f.t.Fatalf("the actions of finding %s: %v, %v", id, items, err)
	}
	return items[0]
}

const account = sim.CloudName + "/" + sim.Account

// carry advances the clock and continues fixes repeatedly, as several passes do.
func (f *fixWorld) carry(d time.Duration) {
	f.t.Helper()
	f.world.Clock.Forward(f.world.Clock.Now().Add(d))
	for range 3 {
		if err := f.carrier.Carry(f.t.Context(), account, f.world.Clock.Now()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// calls counts the calls of an action in the audit log.
func (f *fixWorld) calls(it action.Item) (n int, actors []string) {
	f.t.Helper()
	err := f.world.Store.Actions().Entries(context.Background(), action.Query{Item: it.ID, What: action.EventIntent},
		func(e action.Entry) error {
			n++
			actors = append(actors, e.Actor)
			return nil
		})
	if err != nil {
		f.t.Fatal(err)
	}
	return n, actors
}

func TestFixGoesOnAfterItsGrace(t *testing.T) {
	f := newFixWorld(t)
	it := f.fix("gpu-instance-idle")
	if it.Phase != action.Warned {
		t.Fatalf("the fix is %s", it.Phase)
	}
	f.carry(20 * time.Minute)
	if n, _ := f.calls(it); n != 0 {
		t.Fatalf("%d calls within the grace period", n)
	}
	f.carry(11 * time.Minute)
	if n, actors := f.calls(it); n != 1 || actors[0] != "bo" {
		t.Errorf("after the grace period: %d calls by %v, want one by bo", n, actors)
	}
}

func TestFixWaitsForItsApproval(t *testing.T) {
	f := newFixWorld(t)
	it := f.fix("volume-unattached")
	requests, err := f.world.Store.Approvals().Requests(t.Context(), "")
	if err != nil || len(requests) != 1 {
		t.Fatalf("the requests are %v, %v", requests, err)
	}
	f.carry(31 * time.Minute)
	if n, _ := f.calls(it); n != 0 {
		t.Fatalf("%d calls without an approval", n)
	}
	desk := approval.Desk{Store: f.world.Store.Approvals()}
	if _, err := desk.Decide(t.Context(), requests[0].ID, approval.Person{
		Name: "cy", Roles: []string{approval.RoleApprover}, Proof: approval.Proof{Kind: approval.SelfDeclared},
	}, true, "", f.world.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	f.carry(time.Minute)
	if n, _ := f.calls(it); n != 1 {
		t.Errorf("%d calls after the approval, want 1", n)
	}
	// Passes of policies confirm its calls; the second call is made once the first is confirmed.
	for range 6 {
		f.pass()
		f.carry(5 * time.Minute)
	}
	now, err := f.world.Store.Actions().Item(t.Context(), it.ID)
	if err != nil || now.Phase != action.Done {
		t.Errorf("the fix is %s, %v", now.Phase, err)
	}
	if n, _ := f.calls(it); n != 2 {
		t.Errorf("%d calls in all, want a snapshot and the deletion", n)
	}
}

// pass makes a pass without policies.
func (f *fixWorld) pass() {
	f.t.Helper()
	setting := f.setting()
	setting.Query.Kinds = map[inventory.Kind]bool{inventory.KindInstance: true}
	if _, err := round.New(setting).Round(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func TestFixWithdrawnByAKeepIsNotCarriedOn(t *testing.T) {
	f := newFixWorld(t)
	it := f.fix("gpu-instance-idle")
	if err := f.world.Store.Actions().PutKeep(t.Context(), action.Keep{
		Ref: it.Ref, Until: f.world.Clock.Now().Add(24 * time.Hour), Reason: "demo", By: "ana",
		At: f.world.Clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	f.carry(31 * time.Minute)
	if n, _ := f.calls(it); n != 0 {
		t.Errorf("%d calls on an exempt machine", n)
	}
}

// TestFixOfAFormerOperatorIsNotCarriedOn checks that a fix goes on while its requester may ask for it, in all
// teams or in that of its machine, and not after that.
func TestFixOfAFormerOperatorIsNotCarriedOn(t *testing.T) {
	for _, c := range []struct {
		name, role string
		revoked    bool
		goesOn     bool
	}{
		{name: "an operator", role: approval.RoleOperator, goesOn: true},
		{name: "one whose token was revoked", role: approval.RoleOperator, revoked: true},
		{name: "a user", role: approval.RoleUser},
		{name: "an operator of its team", role: approval.RoleOperator + "@TEAM", goesOn: true},
		{name: "an operator of another team", role: approval.RoleOperator + "@elsewhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixWorld(t)
			it := f.fix("gpu-instance-idle")
			i := slices.IndexFunc(f.scan.Findings, func(x view.Finding) bool {
				return round.FindingSource(x.ID) == it.Source
			})
			now := f.world.Clock.Now()
			entry := action.Entry{At: now, Actor: "ana", What: action.EventToken}
			if err := f.world.Store.Callers().Create(t.Context(), store.Token{
				ID: "0123456789ab", Hash: strings.Repeat("0", 64), Name: "bo", CreatedBy: "ana", CreatedAt: now,
				ExpiresAt: now.Add(24 * time.Hour),
				Roles:     []string{strings.Replace(c.role, "TEAM", f.scan.Findings[i].Resource.Owner.Team, 1)},
			}, entry); err != nil {
				t.Fatal(err)
			}
			if c.revoked {
				if _, err := f.world.Store.Callers().Revoke(t.Context(), "0123456789ab", now,
					func(store.Token) action.Entry { return entry }); err != nil {
					t.Fatal(err)
				}
			}
			f.carry(31 * time.Minute)
			if n, _ := f.calls(it); (n > 0) != c.goesOn {
				t.Errorf("%d calls", n)
			}
		})
	}
}
