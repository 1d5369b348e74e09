package act

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// historyWindow is how far back the ledger is searched for a resource.
const historyWindow = 30 * 24 * time.Hour

// hasSeen reports whether a state has ever seen a resource, on the ladder or in a listing, so that
// every process that acts by this state reads its exemptions.
func hasSeen(ctx context.Context, s *store.Store, ref inventory.Ref, now time.Time) (bool, error) {
	account := ref.Cloud + "/" + ref.Account
	items, err := s.Actions().Items(ctx, account, action.ItemQuery{Refs: []inventory.Ref{ref}})
	if err != nil || len(items) > 0 {
		return len(items) > 0, err
	}
	seen := false
	err = s.Actions().Entries(ctx, action.Query{Account: account, Resource: ref.String()}, func(e action.Entry) error {
		seen = seen || e.Item != "" && e.Resource == ref.String()
		return nil
	})
	if err != nil || seen {
		return seen, err
	}
	to := now.Truncate(time.Hour).Add(time.Hour)
	all, _, err := s.Ledger().Histories(ctx, ledger.Account{Cloud: ref.Cloud, ID: ref.Account}, []inventory.Ref{ref},
		to.Add(-historyWindow), to)
	if err != nil {
		return false, fmt.Errorf("look whether %s was seen before: %w", ref.ID, err)
	}
	return len(all) > 0 && len(all[0].Observations) > 0, nil
}

// keepTag exempts a resource by its tag, which every process reads whatever its state. If that
// fails, the error contains the command by which the person can write it.
func keepTag(ctx context.Context, req *runtime.Request, cfg config.Config, f clouds.Source, ref inventory.Ref,
	end time.Time) error {
	r := &inventory.Resource{ID: ref.ID, Kind: ref.Kind, Cloud: ref.Cloud, Account: ref.Account, Region: ref.Region}
	err := func() error {
		f.Cloud, f.Regions = ref.Cloud, []string{ref.Region}
		cloud, err := clouds.OpenActionable(ctx, req, cfg, f)
		if err != nil {
			return err
		}
		seen, err := cloud.List(ctx, round.Query{Now: req.Now().UTC(), Only: map[inventory.Ref]bool{ref: true}})
		if err != nil {
			return err
		}
		if len(seen.Resources) != 1 {
			if len(seen.BlindSpots) > 0 {
				return fmt.Errorf("it cannot be read: %s", seen.BlindSpots[0].Why)
			}
			return errors.New("it is not there")
		}
		if r = seen.Resources[0]; !r.KeepUntil.Before(end) {
			return nil // it is kept for longer
		}
		return writeTag(ctx, cloud.Actions(), r, end)
	}()
	if err == nil {
		return nil
	}
	hint := "ask a person who may tag it for the tag " + inventory.TagKeepUntil + "=" + end.Format(time.RFC3339)
	if cmd := clouds.KeepByHand(r, end); cmd != "" {
		hint = "a person who may tag it runs: " + cmd
	}
	return &runtime.Error{Code: "not_kept", Hint: hint,
		Err: fmt.Errorf(
			"keep %s: this state has never seen it, so the state that acts on it does not read this keep, and its "+
				"tag %s is not written: %s", ref, inventory.TagKeepUntil, action.Redact(err.Error()))}
}

// writeTag writes the tag that exempts a resource and verifies it.
func writeTag(ctx context.Context, hands action.Cloud, r *inventory.Resource, end time.Time) error {
	do := policy.Do{Verb: policy.Tag, Tags: map[string]string{inventory.TagKeepUntil: end.Format(time.RFC3339)}}
	steps, err := hands.Plan(ctx, r, do)
	var refusal *action.Refusal
	if errors.As(err, &refusal) && refusal.Rule == "nothing-to-do" {
		return nil
	}
	if err != nil {
		return err
	}
	for i, s := range steps {
		s.Key = "keep-" + end.Format(time.RFC3339)
		task := action.Task{Ref: r.Ref(), Identity: action.Identity(r), Do: do, Step: s, Earlier: steps[:i]}
		if _, err := hands.Do(ctx, task); err != nil {
			return err
		}
		switch progress, _, err := hands.Look(ctx, task); {
		case err != nil:
			return err
		case progress == action.NotDone:
			return errors.New("the provider does not show the tag")
		}
	}
	return nil
}
