package act

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// Exempt exempts a resource from every policy for a time, by its id, name or full reference. If
// this state has never seen the resource, its tag is written as well.
func Exempt(ctx context.Context, req *runtime.Request, f clouds.Source, name, duration, reason string) (view.Keep,
	error) {
	var none view.Keep
	cfg, err := req.Config()
	if err != nil {
		return none, err
	}
	now := req.Now().UTC()
	if err := CheckKeep(name, duration, reason); err != nil {
		return none, err
	}
	end, err := runtime.ParseUntil(now, duration)
	if err != nil {
		return none, runtime.Invalid("--for: %w", err)
	}
	who, err := req.Person(cfg)
	if err != nil {
		return none, err
	}
	ref, err := audit.Resolve(ctx, req, cfg, name)
	if missing := (*runtime.Error)(nil); errors.As(err, &missing) && missing.Code == "not_found" {
		found, failed := clouds.FindResource(ctx, req, cfg, f, name)
		if !errors.Is(failed, inventory.ErrNotFound) {
			ref, err = found, failed
		}
	}
	if err != nil {
		return none, err
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return none, err
	}
	defer s.Close()
	k := action.Keep{Ref: ref, Until: end, Reason: action.Redact(reason), By: who, At: now}
	seen, err := hasSeen(ctx, s, ref, now)
	if err != nil {
		return none, err
	}
	l := action.Ladder{
		Store: s.Actions(), Account: ref.Cloud + "/" + ref.Account, Actor: who, Clock: req.Clock,
		KeepMax: cfg.Enforce.KeepMax,
	}
	if err := l.Keep(ctx, k); err != nil {
		return none, &runtime.Error{
			Class: runtime.Denied, Code: "not_kept", Err: err,
			Hint: "enforce.keep_max in curfew.yaml sets the longest keep; it can be renewed",
		}
	}
	doc := view.NewKeep(k)
	if doc.Tagged = !seen && ref.Cloud == "aws"; doc.Tagged {
		return doc, keepTag(ctx, req, cfg, f, ref, end)
	}
	return doc, nil
}

// Keeps returns the exemptions in force.
func Keeps(ctx context.Context, req *runtime.Request) (view.Keeps, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return view.Keeps{}, err
	}
	defer s.Close()
	all, err := s.Actions().Keeps(ctx, req.Now().UTC())
	if err != nil {
		return view.Keeps{}, fmt.Errorf("list the keeps: %w", err)
	}
	return view.NewKeeps(all), nil
}

// CheckKeep returns an error for an incomplete exemption.
func CheckKeep(name, duration, reason string) error {
	switch {
	case duration == "":
		return runtime.Invalid("curfew keep %s: give --for, such as --for 24h", name)
	case strings.TrimSpace(reason) == "":
		return runtime.Invalid("curfew keep %s: give --reason, so that others know why it runs", name)
	}
	return nil
}

// CheckReason returns an error for a freeze, or its end, without a reason.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return runtime.Invalid("give --reason, so that others know why")
	}
	return nil
}

// CheckConfirm returns an error for the confirmation of a fuse without a reason.
func CheckConfirm(policy, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return runtime.Invalid("curfew confirm %s: give --reason, so that others know why so much is meant", policy)
	}
	return nil
}

// openTimeout bounds opening the state, after which a person is told how to freeze by hand.
const openTimeout = 10 * time.Second

// Freeze stops all actions, or allows them again.
func Freeze(ctx context.Context, req *runtime.Request, reason string, on bool) (view.Freeze, error) {
	var none view.Freeze
	read := req.Config
	if on { // a mistake in the configuration must not prevent a freeze
		read = req.LenientConfig
	}
	cfg, err := read()
	if err != nil {
		return none, frozenByHand(err, on)
	}
	if err := CheckReason(reason); err != nil {
		return none, err
	}
	who, err := req.Person(cfg)
	if err != nil {
		return none, err
	}
	opening, stop := context.WithTimeout(ctx, openTimeout)
	defer stop()
	s, err := req.Open(opening, cfg)
	if err != nil {
		return none, frozenByHand(err, on)
	}
	defer s.Close()
	l := action.Ladder{Store: s.Actions(), Actor: who, Clock: req.Clock}
	change := l.Unfreeze
	if on {
		change = l.Freeze
	}
	if err := change(ctx, reason); err != nil {
		switch {
		case on:
			err = &runtime.Error{Code: "no_state", Err: err}
		case errors.Is(err, action.ErrFrozen): // the state is older than its witness
			err = &runtime.Error{Class: runtime.Denied, Code: "quarantined", Err: err}
		}
		return none, err
	}
	return view.Freeze{
		Schema: view.FreezeSchema, Frozen: on,
		Freeze: action.Freeze{By: who, At: req.Now().UTC(), Reason: action.Redact(reason)},
	}, nil
}

// frozenByHand adds to the error of a freeze how to stop all actions without the state.
func frozenByHand(err error, on bool) error {
	if f := (*runtime.Error)(nil); on && errors.As(err, &f) {
		f.Hint = action.FreezeByHand
	}
	return err
}

// Confirm records that the cause of a policy's blown fuse is intended, in one account or in all
// where it has blown, for a duration or only this time.
func Confirm(ctx context.Context, req *runtime.Request, policy, account, duration, reason string) (view.Fuses, error) {
	var none view.Fuses
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	who, err := req.Person(cfg)
	if err != nil {
		return none, err
	}
	var end time.Time
	if duration != "" {
		now, err := req.InTime(ctx, s)
		if err != nil {
			return none, err
		}
		if end, err = runtime.ParseUntil(now, duration); err != nil {
			return none, runtime.Invalid("--for: %w", err)
		}
	}
	if err := CheckConfirm(policy, reason); err != nil {
		return none, err
	}
	l := action.Ladder{Store: s.Actions(), Account: account, Actor: who, Clock: req.Clock}
	confirmed, err := l.Confirm(ctx, policy, reason, end)
	if errors.Is(err, action.ErrNoFuse) {
		return none, &runtime.Error{
			Code: "not_found", Err: err, Hint: "`curfew confirm` lists the fuses that have blown",
		}
	}
	return view.NewFuses(confirmed), err
}

// Fuses lists the blown fuses without a confirmation.
func Fuses(ctx context.Context, req *runtime.Request) (view.Fuses, error) {
	var none view.Fuses
	_, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	all, err := s.Actions().Fuses(ctx)
	if err != nil {
		return none, fmt.Errorf("list the fuses: %w", err)
	}
	all = slices.DeleteFunc(all, func(f action.Fuse) bool { return !f.IsBlown() })
	return view.NewFuses(all), nil
}

// scratchTag is the tag by which the owner of a machine consents to the loss of its disks.
var scratchTag = map[string]string{inventory.TagDisks: "scratch"}

// Consent allows policies to lose the disks of one machine when they end it: it writes the consent
// as a tag and as an entry in the audit log.
func Consent(ctx context.Context, req *runtime.Request, f clouds.Source, name, reason string) (view.Consent, error) {
	var none view.Consent
	if strings.TrimSpace(reason) == "" {
		return none, runtime.Invalid("curfew consent %s: give --reason, so that others know why its disks may be lost",
			name)
	}
	cfg, err := req.Config()
	if err != nil {
		return none, err
	}
	who, err := req.Person(cfg)
	if err != nil {
		return none, err
	}
	ref, err := audit.Resolve(ctx, req, cfg, name)
	if err != nil {
		return none, err
	}
	if ref.Kind != inventory.KindInstance || ref.Cloud != "aws" {
		return none, runtime.Invalid("curfew consent %s: it is about machines of AWS, and this is of kind %s", ref,
			ref.Kind)
	}
	book, err := req.PriceBook(cfg)
	if err != nil {
		return none, err
	}
	f.Regions = []string{ref.Region}
	lister, err := clouds.Lister(ctx, req, f, cfg, book, req.Now().UTC())
	if err != nil {
		return none, err
	}
	cloud, ok := lister.(*clouds.AWS)
	if !ok {
		return none, runtime.Invalid("curfew consent %s: nothing is carried out there", ref)
	}
	seen, err := cloud.List(ctx, round.Query{Now: req.Now().UTC(), Only: map[inventory.Ref]bool{ref: true}})
	if err != nil {
		return none, clouds.CloudError(err)
	}
	byHand := fmt.Sprintf("by hand: aws ec2 create-tags --region %s --resources %s --tags Key=%s,Value=scratch",
		plain.Shell(ref.Region), plain.Shell(ref.ID), inventory.TagDisks)
	if len(seen.Resources) != 1 {
		return none, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("consent %s: the machine could not be read", ref), Hint: byHand,
		}
	}
	r := seen.Resources[0]
	book.Fill(r)
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return none, err
	}
	defer s.Close()
	now, err := req.InTime(ctx, s)
	if err != nil {
		return none, err
	}
	lost := lossesOf(r)
	entry := action.Entry{
		At: now, Account: ref.Cloud + "/" + ref.Account, Actor: who, What: "consent", Resource: ref.String(),
		Because: action.Redact(reason), Outcome: "may lose " + strings.Join(lost, "; ")}
	if err := s.Actions().Record(ctx, entry); err != nil {
		return none, fmt.Errorf("record the consent: %w", err)
	}
	if err := clouds.WriteTags(ctx, cloud.Actions(), r, scratchTag, "consent-"+ref.ID); err != nil {
		return none, &runtime.Error{Code: "not_tagged", Err: fmt.Errorf("consent %s: %w", ref, err), Hint: byHand}
	}
	return view.Consent{
		Schema: view.ConsentSchema, Resource: ref.String(), Loses: lost, Reason: action.Redact(reason), By: who,
	}, nil
}

// lossesOf returns the disks that a machine loses if policies terminate it.
func lossesOf(r *inventory.Resource) []string {
	out := []string{}
	for _, l := range action.LostDisks(r, policy.Do{Verb: policy.Terminate}) {
		out = append(out, l.String())
	}
	return out
}
