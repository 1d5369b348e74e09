package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Observations returns the observation of each account by a round, for later queries. Profile is
// the one that the accounts were reached by, tags map tags to owners, and judged reports whether
// the round evaluated all rules.
func Observations(r *round.Result, profile string, tags inventory.TagMapping,
	judged bool) ([]snapshot.Observation, error) {
	by := mappingOf(tags)
	verdicts := make(map[inventory.Ref]int, len(r.Facts))
	for i, f := range r.Facts {
		verdicts[f.Resource.Ref()] = i
	}
	byAccount := make(map[string]*snapshot.Observation, len(r.Accounts))
	out := make([]snapshot.Observation, len(r.Accounts))
	for i, account := range r.Accounts {
		out[i] = snapshot.Observation{
			Cloud: r.Cloud, Account: account, At: r.StartedAt, FindingsComplete: judged,
			Parts: r.CompleteParts(account),
			Reach: snapshot.Reach{Profile: profile, Role: r.Roles[account], Regions: r.RegionsRead(account)}}
		byAccount[account] = &out[i]
	}
	for _, res := range r.Resources {
		l := byAccount[res.Account]
		if l == nil {
			continue
		}
		ref := res.Ref()
		kept := view.NewKeptResource(res, r.Hourly(ref))
		if p, works := r.Progress[ref]; works {
			record := view.KeptProgress(p)
			kept.Progress = &record
		}
		body, err := json.Marshal(kept)
		if err != nil {
			return nil, fmt.Errorf("keep %s: %w", ref, err)
		}
		seen := snapshot.Resource{
			Ref: ref, Name: res.Name, State: string(res.State),
			Team: tags.Owner(res.Tags).Team, TeamMapping: by, Body: body,
		}
		if k, ok := verdicts[ref]; ok && r.Facts[k].Duty != nil {
			d := r.Facts[k].Duty
			seen.Duty, seen.DutySince = d.State.String(), d.Since
		}
		l.Resources = append(l.Resources, seen)
	}
	return out, nil
}

// SaveScan keeps an audit: its document, its findings and what it saw. Told says that the
// audit log tells of findings that changed.
func SaveScan(ctx context.Context, s *store.Store, audit *round.Result, doc view.Scan, tags inventory.TagMapping,
	told bool) error {
	looks, err := Observations(audit, doc.Profile, tags, true)
	if err != nil {
		return err
	}
	for i := range looks {
		looks[i].AuditFindings = told
	}
	for _, f := range doc.Findings {
		ref := RefOf(f.Resource)
		i := slices.IndexFunc(looks, func(l snapshot.Observation) bool { return l.Account == ref.Account })
		if i < 0 {
			continue
		}
		body, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("keep finding %s: %w", f.ID, err)
		}
		looks[i].Findings = append(looks[i].Findings, snapshot.Finding{
			ID: f.ID, Rule: f.Rule, Ref: ref, Summary: gist(f), Team: f.Resource.Owner.Team, Body: body,
		})
	}
	var body bytes.Buffer
	if err := view.WriteJSON(&body, doc); err != nil {
		return err
	}
	return s.Snapshots().Save(ctx, &snapshot.Audit{
		Cloud: doc.Cloud, Accounts: doc.Accounts, At: doc.FinishedAt, Body: body.Bytes(),
	}, looks...)
}

// mappingOf names a mapping of tags: two that are not alike have different names.
func mappingOf(tags inventory.TagMapping) string {
	text, err := json.Marshal(tags)
	if err != nil {
		return "" // it holds nothing but texts
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// gist says in a few words what a finding comes to: what its fix saves a month, to two
// digits, and the fix. What it says beyond that changes with every audit.
func gist(f view.Finding) string {
	saves := "the saving is not known"
	if v, known := f.MonthlySavingsUSD.Get(); known {
		unit := money.Cent
		for v/unit >= 100 {
			unit *= 10
		}
		saves = "saves " + (v / unit * unit).Dollars() + " a month"
	}
	if f.Fix.Change.Verb == "" {
		return saves
	}
	return saves + " by " + string(f.Fix.Change.Verb)
}

// scanAgain is the remedy for a kept scan that cannot be read.
const scanAgain = "run `curfew scan` again"

// NoScan returns the error for a state without a kept scan.
func NoScan(cfg config.Config) error {
	if old, err := filepath.Glob(filepath.Join(cfg.DataDir, "scans", "*.json")); err == nil && cfg.DataDir != "" &&
		len(old) > 0 {
		return &runtime.Error{
			Code: "no_scan", Err: errors.New("the kept scans are those of an earlier version, which are not read"),
			Hint: scanAgain,
		}
	}
	return &runtime.Error{
		Code: "no_scan", Err: errors.New("there is no kept scan to look in"), Hint: "run `curfew scan` first",
	}
}

// keptScans reads the newest scan of every set of accounts, the newest last.
func keptScans(ctx context.Context, cfg config.Config, s *store.Store) ([]view.Scan, error) {
	audits, err := s.Snapshots().Audits(ctx)
	if err != nil {
		return nil, err
	}
	if len(audits) == 0 {
		return nil, NoScan(cfg)
	}
	out := make([]view.Scan, len(audits))
	for i, a := range audits {
		if out[i], err = view.LoadScan(bytes.NewReader(a.Body)); err != nil {
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("the kept scan of %s: %w", a.Cloud, err),
				Hint: scanAgain,
			}
		}
	}
	return out, nil
}

// LastScan is the kept audit of a cloud; an empty one is the cloud of the newest.
func LastScan(ctx context.Context, req *runtime.Request, cfg config.Config, cloud string) (view.Scan, error) {
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return view.Scan{}, err
	}
	defer s.Close()
	kept, err := keptScans(ctx, cfg, s)
	if err != nil {
		return view.Scan{}, err
	}
	for _, doc := range slices.Backward(kept) {
		if cloud == "" || doc.Cloud == cloud {
			return doc, nil
		}
	}
	return view.Scan{}, &runtime.Error{
		Code: "no_scan", Err: fmt.Errorf("there is no kept scan of %s", cloud),
		Hint: "run `curfew scan --cloud " + cloud + "` first",
	}
}

// keptFindings lists the findings that hold, of all accounts.
func keptFindings(ctx context.Context, cfg config.Config, s *store.Store) ([]Kept, error) {
	found, err := s.Snapshots().Findings(ctx, snapshot.Query{})
	if err != nil {
		return nil, err
	}
	accounts, err := s.Snapshots().Accounts(ctx)
	if err != nil {
		return nil, err
	}
	if len(accounts) == 0 {
		return nil, NoScan(cfg)
	}
	out := make([]Kept, len(found))
	for i, f := range found {
		err := json.Unmarshal(f.Body, &out[i].Finding)
		if err == nil {
			err = out[i].Check()
		}
		if err != nil {
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("the kept finding %s: %w", f.ID, err),
				Hint: scanAgain,
			}
		}
		out[i].Scanned = f.LastAt
		a := slices.IndexFunc(accounts, func(a snapshot.Account) bool {
			return a.Cloud == f.Ref.Cloud && a.ID == f.Ref.Account
		})
		if a >= 0 {
			out[i].Regions = accounts[a].Reach.Regions
		}
	}
	return out, nil
}

// Fixes returns the fixes proposed by current findings of all accounts, and the time of the newest
// observation; zero where nothing was scanned.
func Fixes(ctx context.Context, s *store.Store) ([]accountplan.Fix, time.Time, error) {
	accounts, err := s.Snapshots().Accounts(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	found, err := s.Snapshots().Findings(ctx, snapshot.Query{})
	if err != nil {
		return nil, time.Time{}, err
	}
	var at time.Time
	for _, a := range accounts {
		if a.At.After(at) {
			at = a.At
		}
	}
	out := make([]accountplan.Fix, len(found))
	for i, f := range found {
		doc, _, err := datedFinding(f, Listing{})
		if err != nil {
			return nil, time.Time{}, err
		}
		out[i] = accountplan.Fix{Resource: f.Ref, Type: doc.Resource.Type, Change: doc.Fix.Change}
	}
	return out, at, nil
}

// Inventories returns the last observation of each cloud; none where nothing was scanned.
func Inventories(ctx context.Context, s *store.Store) ([]view.Inventory, error) {
	resources, err := s.Snapshots().Resources(ctx, snapshot.Query{})
	if err != nil {
		return nil, err
	}
	accounts, err := s.Snapshots().Accounts(ctx)
	if err != nil {
		return nil, err
	}
	var all []view.Inventory
	of := func(cloud string) *view.Inventory {
		i := slices.IndexFunc(all, func(v view.Inventory) bool { return v.Cloud == cloud })
		if i < 0 {
			i = len(all)
			all = append(all, view.Inventory{
				Schema: view.InventorySchema, Cloud: cloud, Resources: []view.KeptResource{},
			})
		}
		return &all[i]
	}
	for _, a := range accounts {
		if doc := of(a.Cloud); a.At.After(doc.At) {
			doc.At = a.At
		}
	}
	for _, r := range resources {
		k, err := KeptResource(r)
		if err != nil {
			return nil, err
		}
		doc := of(r.Ref.Cloud)
		doc.Resources = append(doc.Resources, k)
	}
	return all, nil
}

// KeptProgress returns the records of progress of the machines that worked when they were seen
// last, for [round.Setting]. A machine that was launched again has none.
func KeptProgress(ctx context.Context, s *store.Store) (func(*inventory.Resource) (duty.Progress, bool), error) {
	resources, err := s.Snapshots().Resources(ctx, snapshot.Query{})
	if err != nil {
		return nil, err
	}
	type record struct {
		created time.Time
		duty.Progress
	}
	records := map[inventory.Ref]record{}
	for _, r := range resources {
		k, err := KeptResource(r)
		if err != nil {
			return nil, err
		}
		if k.Progress != nil {
			records[r.Ref] = record{k.CreatedAt, duty.Progress(*k.Progress)}
		}
	}
	return func(r *inventory.Resource) (duty.Progress, bool) {
		p, kept := records[r.Ref()]
		return p.Progress, kept && p.created.Equal(r.CreatedAt)
	}, nil
}

// KeptResource is a resource as it was seen last.
func KeptResource(r snapshot.Resource) (view.KeptResource, error) {
	var k view.KeptResource
	if err := json.Unmarshal(r.Body, &k); err != nil {
		return k, &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("the kept resource %s: %w", r.Ref, err),
			Hint: scanAgain,
		}
	}
	return k, nil
}
