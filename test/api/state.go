package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

const configuration = `
identity: root
approvals: {accept: [self-declared]}
people:
  vi: {roles: [viewer]}
  ana: {roles: [admin, approver]}
  ned: {roles: [user]}
budgets:
  - {id: vision, team: vision, purpose: any, amount: 100000}
  - {id: ana, user: ana, purpose: any, amount: 100}
gate: {ask_over: 1000000}
policies: [policy.yaml]
serve: {trace_paths: [traces], bill_paths: [traces]}
aws: {requests_per_second: 10000, regions: [us-east-1]}
notify: {slack: {token_env: SLACK_TOKEN, base_url: "CHANNEL/api/", users: {ana: U0ANA}}}
metrics: {sources: [{url: CHANNEL/metrics}]}
sessions: {cloud: local, grace: 1s}
local: {serve: true, users: {ana: daemon, root: daemon}, dir: "FOLDER"}
rates: {source: finance, as_of: 2026-11-01, vcpu_hour: "1.80", memory_gib_hour: "0.000000001"}
`

// local is the part of the configuration that remains when the rest is in shared settings.
const local = `
identity: root
policies: [policy.yaml]
serve: {trace_paths: [traces], bill_paths: [traces]}
aws: {requests_per_second: 10000, regions: [us-east-1]}
notify: {slack: {token_env: SLACK_TOKEN, base_url: "CHANNEL/api/", users: {ana: U0ANA}}}
metrics: {sources: [{url: CHANNEL/metrics}]}
sessions: {cloud: local, grace: 1s}
local: {serve: true, users: {ana: daemon, root: daemon}, dir: "FOLDER"}
rates: {source: finance, as_of: 2026-11-01, vcpu_hour: "1.80", memory_gib_hour: "0.000000001"}
`

const policies = `
apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: stop
`

const job = `{"apiVersion":"curfew.job/v1","name":"resnet%d","purpose":"training","owner":{"team":"vision","user":"ned"},"resources":{"instance_type":"g6.2xlarge"},"regions":["us-east-1"],"run":"python train.py","max_runtime":"2h"}`

// service is the API with a state, and the names that calls need.
type service struct {
	state         *store.Store
	handler       http.Handler
	log           *bytes.Buffer
	logger        *slog.Logger
	admin, viewer string
	// ids are the subjects of operations, each as often as it can be used.
	requests, holds, tokens []string
	item, finding, resource string
	// fixable are findings for fixes to carry out, stopped are actions that can be undone.
	fixable, stopped []string
	// done is a finished backtest, waiting one that no process carries out.
	done, waiting string
	// end stops the runner of the backtests.
	end func()
}

// build creates a state from a seed, with the examples of the repository at root.
func build(ctx context.Context, dir, root string, seed int) (*service, error) {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, data := filepath.Join(dir, "curfew.yaml"), filepath.Join(dir, "state")
	account, err := newAccount(ctx)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "curfew-api-") // the user of a session cannot read dir
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		return nil, err
	}
	channel := strings.NewReplacer("CHANNEL", account.url, "FOLDER", folder)
	for name, text := range map[string]string{
		file: channel.Replace(configuration), filepath.Join(dir, "policy.yaml"): policies,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	for name, from := range map[string]string{"gpus.csv.gz": "gpus.csv.gz", "focus-2026-10.csv": "focus-2026-10.csv"} {
		text, err := os.ReadFile(filepath.Join(root, "examples", "data", from))
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "traces"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "traces", name), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	idle, err := account.acted(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, account.close())
	}
	none := func(string) (string, bool) { return "", false }
	bill, err := filepath.Abs(filepath.Join(root, "examples", "data", "focus-2026-10.csv"))
	if err != nil {
		return nil, err
	}
	var failed bytes.Buffer
	for _, args := range [][]string{{"scan", "--demo", "--quiet"}, {"bill", "import", bill}} {
		if exit := cli.Run(ctx, cli.Process{
			Args: append(args, "--config", file, "--data-dir", data), Stdin: strings.NewReader(""),
			Stdout: &bytes.Buffer{},
			Stderr: &failed,
			Now:    time.Now, Dir: dir, WitnessDir: filepath.Join(dir, "witness"),
			Lookup: none}); exit != cli.ExitDone {
			return nil, fmt.Errorf("curfew %s: exit %d: %s", strings.Join(args, " "), exit, failed.String())
		}
	}
	state, err := store.Open(ctx, store.Options{Dir: data})
	if err != nil {
		return nil, err
	}
	s := &service{state: state, log: &bytes.Buffer{}, end: func() { _ = account.close(); _ = os.RemoveAll(folder) }}
	s.logger = slog.New(slog.NewTextHandler(s.log, nil))
	req := runtime.NewProcess(runtime.Host{
		Now: time.Now, Lookup: os.LookupEnv, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Log: io.Discard,
	}).Request()
	req.ConfigFlag, req.DataFlag, req.Storage = file, data, runtime.LentStorage{State: state}
	if s.handler, err = api.New(api.Options{
		Process: req.Process, State: state, Rate: 1e6, Burst: 1e6, Poll: 50 * time.Millisecond, Log: s.logger,
	}); err != nil {
		return nil, err
	}
	now := time.Now()
	for i := range 40 {
		r, err := approval.Desk{
			Store: state.Approvals(),
		}.Ask(ctx, approval.Request{
			Kind: "job", Subject: fmt.Sprintf("job resnet%d", i), PlanHash: fmt.Sprint("plan", i),
			Amount:  money.Amount(random.Int64N(int64(500 * money.USD))),
			AskedBy: "ned", AskedProof: approval.Proof{
				Kind: approval.Token, Subject: "ned", Mapped: true,
			}, Team: "vision"},
			now)
		if err != nil {
			return nil, err
		}
		s.requests = append(s.requests, r.ID)
	}
	as := func(name string) *runtime.Request {
		one := req.Fresh()
		one.Caller = runtime.ServedCaller(approval.Person{
			Name: name, Proof: approval.Proof{Kind: approval.Token, Subject: name, Mapped: true},
		})
		return one
	}
	for i := range 30 {
		doc, err := govern.Gate(ctx, as("ned"), "-", govern.GateOptions{
			EstimateOptions: govern.EstimateOptions{In: strings.NewReader(fmt.Sprintf(job, i))},
		})
		if err != nil {
			return nil, fmt.Errorf("reserve: %w", err)
		}
		if doc.HoldID != nil {
			s.holds = append(s.holds, *doc.HoldID)
		}
	}
	for i := range 20 {
		doc, err := identity.CreateToken(ctx, as("ana"), identity.TokenOptions{
			Name: fmt.Sprint("ci", i), Roles: []string{"viewer"},
		})
		if err != nil {
			return nil, err
		}
		s.tokens = append(s.tokens, doc.ID)
	}
	fleet, err := audit.Resources(ctx, req.Fresh())
	if err != nil {
		return nil, err
	}
	found, err := audit.Findings(ctx, req.Fresh())
	if err != nil {
		return nil, err
	}
	one := fleet.Resources[random.IntN(len(fleet.Resources))]
	s.resource, s.finding = one.Resource, found.Findings[random.IntN(len(found.Findings))].ID
	for _, f := range found.Findings {
		if slices.Contains(idle, f.Resource.ID) && f.Rule == "instance-idle" {
			s.fixable = append(s.fixable, f.ID)
		}
	}
	done, err := audit.Actions(ctx, req.Fresh(), "", 1000)
	if err != nil {
		return nil, err
	}
	for _, it := range done.Actions {
		if it.Phase == string(action.Done) {
			s.stopped = append(s.stopped, it.ID)
		}
	}
	if len(s.fixable) != spares || len(s.stopped) != 2 {
		return nil, fmt.Errorf("the account has %d findings to fix and %d actions to take back", len(s.fixable),
			len(s.stopped))
	}
	for i := range 5 {
		id := fmt.Sprintf("item%d", i)
		it := action.Item{
			ID: id, Account: "sim/" + one.Account, Source: "idle-gpu-machines", Phase: action.Observed, FirstRound: 1,
			FirstAt: now, UpdatedAt: now,
			Ref: inventory.Ref{
				Cloud: "sim", Account: one.Account, Region: "us-east-1", Kind: inventory.KindInstance,
				ID: fmt.Sprint("i-", i),
			}, Do: policy.Do{Verb: policy.Stop}}
		if _, err := state.Actions().Save(ctx, it, action.Entry{
			At: now, Account: it.Account, Actor: "policy idle-gpu-machines", What: action.EventObserved,
			Resource: it.Ref.String(), Item: id,
		}); err != nil {
			return nil, err
		}
		s.item = id
	}
	if err := state.Actions().Blow(ctx, action.Fuse{
		Account: "sim/" + one.Account, Source: "idle-gpu-machines", At: now, Due: 9, Selected: 12,
	}); err != nil {
		return nil, err
	}
	if err := s.replays(ctx, req, as("ned")); err != nil {
		return nil, err
	}
	if err := s.keeps(ctx, req, as("ana")); err != nil {
		return nil, err
	}
	for name, to := range map[string]*string{"ana": &s.admin, "vi": &s.viewer} {
		roles := map[string][]string{"ana": {"admin", "approver"}, "vi": {"viewer"}}[name]
		doc, err := identity.CreateToken(ctx, as(name), identity.TokenOptions{Name: name, Roles: roles})
		if err != nil {
			return nil, err
		}
		*to = doc.Secret
	}
	return s, s.share(ctx, file, channel)
}

// share makes the configuration shared settings, as an admin through the API.
func (s *service) share(ctx context.Context, file string, channel *strings.Replacer) error {
	shared := configuration
	for line := range strings.Lines(local) {
		shared = strings.Replace(shared, line, "", 1)
	}
	now := time.Now()
	err := s.state.Settings().Put(ctx, store.SettingChange{
		Setting: store.Setting{
			Kind: runtime.SettingsKind, Version: 1, At: now, Who: "root", Reason: "a test", Body: "\n" + shared,
		},
		Entry: action.Entry{At: now, Actor: "root", What: action.EventSettings}})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(channel.Replace(local)), 0o600)
}

// started are the sessions to extend and end.
var started = []string{"longer", "shorter"}

// keeps keeps sessions on this machine until the state is closed, and starts some.
func (s *service) keeps(ctx context.Context, req, as *runtime.Request) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := sessions.Keep(background, req.Fresh(), true); err != nil && background.Err() == nil {
			s.logger.Error("sessions are not kept", "error", err)
		}
	}()
	all, err := sessions.Open(background, as.Fresh())
	if err != nil {
		stop()
		return err
	}
	before := s.end
	s.end = func() {
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			names, err := all.OpenNames(background)
			if err == nil && len(names) == 0 {
				break
			}
			for _, name := range names {
				if _, err := all.Down(background, name, true); err != nil {
					s.logger.Error("a session stays", "session", name, "error", err)
				}
			}
		}
		_ = all.Close()
		stop()
		<-ended
		before()
	}
	for _, name := range started {
		o := sessions.UpOptions{
			Name: name, SpecOptions: sessions.SpecOptions{CPUs: 1}, Lease: time.Hour, Idle: time.Hour,
		}
		if _, d, err := all.Up(ctx, o); err != nil || d.Decision != gate.Allow {
			return fmt.Errorf("start session %s: %+v, %w", name, d, err)
		}
	}
	return nil
}

// replays carries out backtests until the state is closed, and creates a finished one.
func (s *service) replays(ctx context.Context, req, as *runtime.Request) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		replay.RunBacktests(background, req.Fresh(), replay.BacktestRunner{
			Store: s.state, TTL: 5 * time.Second, Poll: 100 * time.Millisecond, Log: s.logger,
		})
	}()
	before := s.end
	s.end = func() { stop(); <-ended; before() }
	doc, err := replay.CreateBacktest(ctx, as, view.BacktestAsked{
		Trace: "gpus.csv.gz", RestartCost: "5m", Baselines: true,
	})
	if err != nil {
		return err
	}
	s.done = doc.Backtests[0].ID
	for {
		doc, err := replay.Backtest(ctx, req.Fresh(), s.done)
		if err != nil {
			return err
		}
		if doc.Backtests[0].State == "done" {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	// The lease of another process prevents this one from running.
	s.waiting = "waiting"
	if _, _, err = s.state.Leases().Take(ctx, "backtest/"+s.waiting, "another", 24*time.Hour); err != nil {
		return err
	}
	return s.state.Backtests().Create(ctx, store.Backtest{
		ID: s.waiting, CreatedBy: "ned", CreatedAt: time.Now(), Spec: `{"trace":"gpus.csv.gz"}`,
	}, 100, 100,
		action.Entry{At: time.Now(), Actor: "ned", What: action.EventBacktest})
}
