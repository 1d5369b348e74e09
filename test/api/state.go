package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
)

const configuration = `
identity: root
approvals: {accept: [self-declared]}
people:
  vi: {roles: [viewer]}
  ada: {roles: [admin, approver]}
  ned: {roles: [user]}
budgets:
  - {id: vision, team: vision, purpose: any, amount: 100000}
gate: {ask_over: 1000000}
policies: [policy.yaml]
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

// service is the API over a state, with what calls need to name.
type service struct {
	state         *store.Store
	handler       http.Handler
	log           *bytes.Buffer
	admin, viewer string
	// ids are what operations can be about, each as often as it can be used.
	requests, holds, tokens []string
	item, finding, resource string
}

// build makes a state from a seed, with the examples of the repository at root.
func build(ctx context.Context, dir, root string, seed int) (*service, error) {
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // it is test data
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, data := filepath.Join(dir, "curfew.yaml"), filepath.Join(dir, "state")
	for name, text := range map[string]string{file: configuration, filepath.Join(dir, "policy.yaml"): policies} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	none := func(string) (string, bool) { return "", false }
	bill, err := filepath.Abs(filepath.Join(root, "examples", "data", "focus-2026-10.csv"))
	if err != nil {
		return nil, err
	}
	var failed bytes.Buffer
	for _, args := range [][]string{{"scan", "--demo", "--quiet"}, {"bill", "import", bill}} {
		if exit := cli.Run(ctx, cli.Process{Args: append(args, "--config", file, "--data-dir", data), Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &failed,
			Now: time.Now, Dir: dir, Lookup: none}); exit != cli.ExitDone {
			return nil, fmt.Errorf("curfew %s: exit %d: %s", strings.Join(args, " "), exit, failed.String())
		}
	}
	state, err := store.Open(ctx, store.Options{Dir: data})
	if err != nil {
		return nil, err
	}
	s := &service{state: state, log: &bytes.Buffer{}}
	rt := &daemon.Runtime{ConfigFlag: file, DataFlag: data, Kept: state, Host: daemon.Host{Now: time.Now, Lookup: none, Dir: dir, Log: s.log}}
	if s.handler, err = api.New(api.Options{Runtime: rt, Rate: 1e6, Burst: 1e6, Poll: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(s.log, nil))}); err != nil {
		return nil, err
	}
	now := time.Now()
	for i := range 40 {
		r, err := approval.Desk{Store: state.Approvals()}.Ask(ctx, approval.Request{Kind: "job", Subject: fmt.Sprintf("job resnet%d", i), PlanHash: fmt.Sprint("plan", i), Amount: money.Amount(random.Int64N(int64(500 * money.USD))),
			AskedBy: "ned", AskedProof: approval.Proof{Kind: approval.Token, Subject: "ned", Mapped: true}, Team: "vision"}, now)
		if err != nil {
			return nil, err
		}
		s.requests = append(s.requests, r.ID)
	}
	as := func(name string) *daemon.Runtime {
		one := rt.For()
		one.Caller = &approval.Person{Name: name, Proof: approval.Proof{Kind: approval.Token, Subject: name, Mapped: true}}
		return one
	}
	for i := range 30 {
		doc, err := as("ned").Gate(ctx, "-", daemon.GateOptions{EstimateOptions: daemon.EstimateOptions{In: strings.NewReader(fmt.Sprintf(job, i))}})
		if err != nil {
			return nil, fmt.Errorf("reserve: %w", err)
		}
		if doc.HoldID != nil {
			s.holds = append(s.holds, *doc.HoldID)
		}
	}
	for i := range 20 {
		doc, err := as("ada").CreateToken(ctx, daemon.TokenOptions{Name: fmt.Sprint("ci", i), Roles: []string{"viewer"}})
		if err != nil {
			return nil, err
		}
		s.tokens = append(s.tokens, doc.ID)
	}
	fleet, err := rt.For().Resources(ctx)
	if err != nil {
		return nil, err
	}
	found, err := rt.For().Findings(ctx)
	if err != nil {
		return nil, err
	}
	one := fleet.Resources[random.IntN(len(fleet.Resources))]
	s.resource, s.finding = one.Resource, found.Findings[random.IntN(len(found.Findings))].ID
	for i := range 5 {
		id := fmt.Sprintf("item%d", i)
		it := action.Item{ID: id, Account: "sim/" + one.Account, Source: "idle-gpu-machines", Phase: action.Observed, FirstRound: 1, FirstAt: now, UpdatedAt: now,
			Ref: inventory.Ref{Cloud: "sim", Account: one.Account, Region: "us-east-1", Kind: inventory.KindInstance, ID: fmt.Sprint("i-", i)}, Do: policy.Do{Verb: policy.Stop}}
		if _, err := state.Actions().Save(ctx, it, action.Entry{At: now, Account: it.Account, Actor: "policy idle-gpu-machines", What: action.EventObserved, Resource: it.Ref.String(), Item: id}); err != nil {
			return nil, err
		}
		s.item = id
	}
	if err := state.Actions().Blow(ctx, action.Fuse{Account: "sim/" + one.Account, Source: "idle-gpu-machines", At: now, Due: 9, Selected: 12}); err != nil {
		return nil, err
	}
	for name, to := range map[string]*string{"ada": &s.admin, "vi": &s.viewer} {
		roles := map[string][]string{"ada": {"admin", "approver"}, "vi": {"viewer"}}[name]
		doc, err := as(name).CreateToken(ctx, daemon.TokenOptions{Name: name, Roles: roles})
		if err != nil {
			return nil, err
		}
		*to = doc.Secret
	}
	return s, nil
}
