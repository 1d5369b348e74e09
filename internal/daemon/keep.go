package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// seenFor is how far back the ledger is asked whether a state has seen a resource.
const seenFor = 30 * 24 * time.Hour

// HasSeen says whether a state has ever seen a resource, so that whoever acts by it reads
// its keeps: it has been on the ladder, or was observed.
func HasSeen(ctx context.Context, s *store.Store, ref inventory.Ref, now time.Time) (bool, error) {
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
	all, _, err := s.Ledger().Histories(ctx, ledger.Account{Cloud: ref.Cloud, ID: ref.Account}, []inventory.Ref{ref}, to.Add(-seenFor), to)
	if err != nil {
		return false, fmt.Errorf("look whether %s was seen before: %w", ref.ID, err)
	}
	return len(all) > 0 && len(all[0].Observations) > 0, nil
}

// KeepTag keeps a resource by its tag, which every process reads, whatever its state. Where
// that cannot be done the error says by which command the person can.
func (rt *Runtime) KeepTag(ctx context.Context, cfg config.Config, f Source, ref inventory.Ref, end time.Time) error {
	r := &inventory.Resource{ID: ref.ID, Kind: ref.Kind, Cloud: ref.Cloud, Account: ref.Account, Region: ref.Region}
	err := func() error {
		f.Cloud, f.Regions = ref.Cloud, []string{ref.Region}
		cloud, err := rt.Cloud(ctx, cfg, f)
		if err != nil {
			return err
		}
		seen, err := cloud.List(ctx, round.Query{Now: rt.Now().UTC(), Only: map[inventory.Ref]bool{ref: true}})
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
	hint := "ask whoever may tag it for the tag " + inventory.TagKeepUntil + "=" + end.Format(time.RFC3339)
	if cmd := keepByHand(r, end); cmd != "" {
		hint = "whoever may tag it runs: " + cmd
	}
	return &Error{Code: "not_kept", Hint: hint,
		Err: fmt.Errorf("keep %s: this state has never seen it, so whoever acts on it does not read this keep, and its tag %s is not written: %s", ref, inventory.TagKeepUntil, action.Redact(err.Error()))}
}

// writeTag writes the tag that keeps a resource and looks that it is there.
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

// Cloud returns the account of a cloud that can be acted on.
func (rt *Runtime) Cloud(ctx context.Context, cfg config.Config, f Source) (*AWS, error) {
	book, err := rt.PriceBook(cfg)
	if err != nil {
		return nil, err
	}
	lister, err := rt.Lister(ctx, f, cfg, book, rt.Now().UTC())
	if err != nil {
		return nil, err
	}
	cloud, ok := lister.(*AWS)
	if !ok {
		return nil, invalid("--cloud %s: nothing is tagged there", f.Cloud)
	}
	return cloud, nil
}

// ec2ID is what EC2 calls things, by their kinds.
var ec2ID = lazyregexp.New(`^(i|vol|snap|ami|nat|eipalloc)-[0-9a-f]{8,17}$`)

var ec2Kinds = map[string]inventory.Kind{"i": inventory.KindInstance, "vol": inventory.KindVolume, "snap": inventory.KindSnapshot,
	"ami": inventory.KindImage, "nat": inventory.KindNATGateway, "eipalloc": inventory.KindAddress}

// Find looks for an id in the account where no scan has it.
func (rt *Runtime) Find(ctx context.Context, cfg config.Config, f Source, id string) (inventory.Ref, error) {
	parts := ec2ID.FindStringSubmatch(id)
	if parts == nil {
		return inventory.Ref{}, inventory.ErrNotFound
	}
	f.Cloud = "aws"
	cloud, err := rt.Cloud(ctx, cfg, f)
	if err != nil {
		return inventory.Ref{}, err
	}
	seen, err := cloud.List(ctx, round.Query{Now: rt.Now().UTC(), Kinds: map[inventory.Kind]bool{ec2Kinds[parts[1]]: true}})
	if err != nil {
		return inventory.Ref{}, CloudError(err)
	}
	for _, r := range seen.Resources {
		if r.ID == id {
			return r.Ref(), nil
		}
	}
	return inventory.Ref{}, inventory.ErrNotFound
}
