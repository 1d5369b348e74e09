package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// Exempt keeps a resource from every policy for a time, by its id, its name or its whole
// identity. Where this state has never seen the resource its tag is written as well.
func (rt *Runtime) Exempt(ctx context.Context, f Source, name, duration, reason string) (view.Keep, error) {
	var none view.Keep
	cfg, err := rt.Config()
	if err != nil {
		return none, err
	}
	now := rt.Now().UTC()
	if err := CheckKeep(name, duration, reason); err != nil {
		return none, err
	}
	end, err := until(now, duration)
	if err != nil {
		return none, invalid("--for: %w", err)
	}
	who, err := rt.Person(cfg)
	if err != nil {
		return none, err
	}
	ref, err := rt.Resolve(ctx, cfg, name)
	if missing := (*Error)(nil); errors.As(err, &missing) && missing.Code == "not_found" {
		found, failed := rt.Find(ctx, cfg, f, name)
		if !errors.Is(failed, inventory.ErrNotFound) {
			ref, err = found, failed
		}
	}
	if err != nil {
		return none, err
	}
	s, err := rt.Open(ctx, cfg)
	if err != nil {
		return none, err
	}
	defer s.Close()
	k := action.Keep{Ref: ref, Until: end, Reason: action.Redact(reason), By: who, At: now}
	seen, err := HasSeen(ctx, s, ref, now)
	if err != nil {
		return none, err
	}
	l := action.Ladder{Store: s.Actions(), Account: ref.Cloud + "/" + ref.Account, Actor: who, Clock: rt.Clock, KeepMax: cfg.Enforce.KeepMax}
	if err := l.Keep(ctx, k); err != nil {
		return none, &Error{Class: Denied, Code: "not_kept", Err: err, Hint: "enforce.keep_max in curfew.yaml sets the longest keep; it can be renewed"}
	}
	doc := view.NewKeep(k)
	if doc.Tagged = !seen && ref.Cloud == "aws"; doc.Tagged {
		return doc, rt.KeepTag(ctx, cfg, f, ref, end)
	}
	return doc, nil
}

// Keeps are the exemptions that hold.
func (rt *Runtime) Keeps(ctx context.Context) (view.Keeps, error) {
	_, s, err := rt.State(ctx)
	if err != nil {
		return view.Keeps{}, err
	}
	defer s.Close()
	all, err := s.Actions().Keeps(ctx, rt.Now().UTC())
	if err != nil {
		return view.Keeps{}, fmt.Errorf("list the keeps: %w", err)
	}
	return view.NewKeeps(all), nil
}

// CheckKeep says what an exemption lacks.
func CheckKeep(name, duration, reason string) error {
	switch {
	case duration == "":
		return invalid("curfew keep %s: give --for, such as --for 24h", name)
	case strings.TrimSpace(reason) == "":
		return invalid("curfew keep %s: give --reason, so that others know why it runs", name)
	}
	return nil
}

// CheckReason says that a freeze, or its end, lacks a reason.
func CheckReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return invalid("give --reason, so that others know why")
	}
	return nil
}

// CheckConfirm says that the confirmation of a fuse lacks a reason.
func CheckConfirm(policy, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return invalid("curfew confirm %s: give --reason, so that others know why so much is meant", policy)
	}
	return nil
}

// freezeWithin is how long the state may take to be opened before a person learns how to
// freeze by hand.
const freezeWithin = 10 * time.Second

// Freeze stops all actions, or allows them again.
func (rt *Runtime) Freeze(ctx context.Context, reason string, on bool) (view.Freeze, error) {
	var none view.Freeze
	cfg, err := rt.Config()
	if err != nil {
		return none, err
	}
	if err := CheckReason(reason); err != nil {
		return none, err
	}
	who, err := rt.Person(cfg)
	if err != nil {
		return none, err
	}
	opening, stop := context.WithTimeout(ctx, freezeWithin)
	defer stop()
	s, err := rt.Open(opening, cfg)
	if err != nil {
		if f := (*Error)(nil); on && errors.As(err, &f) {
			f.Hint = action.FreezeByHand
		}
		return none, err
	}
	defer s.Close()
	l := action.Ladder{Store: s.Actions(), Actor: who, Clock: rt.Clock}
	change := l.Unfreeze
	if on {
		change = l.Freeze
	}
	if err := change(ctx, reason); err != nil {
		return none, err
	}
	return view.Freeze{Schema: view.FreezeSchema, Frozen: on, Freeze: action.Freeze{By: who, At: rt.Now().UTC(), Reason: action.Redact(reason)}}, nil
}

// Entries gives the entries of the audit log, oldest first.
func (rt *Runtime) Entries(ctx context.Context, q action.Query, each func(view.AuditEntry) error) error {
	_, s, err := rt.State(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Actions().Entries(ctx, q, func(e action.Entry) error { return each(view.NewAuditEntry(e)) }); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	return nil
}

// Confirm says that what has blown a policy's fuse is meant; an empty account is all where
// it has blown, an empty duration this once.
func (rt *Runtime) Confirm(ctx context.Context, policy, account, duration, reason string) (view.Fuses, error) {
	var none view.Fuses
	cfg, s, err := rt.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	who, err := rt.Person(cfg)
	if err != nil {
		return none, err
	}
	var end time.Time
	if duration != "" {
		now, err := rt.InTime(ctx, s)
		if err != nil {
			return none, err
		}
		if end, err = until(now, duration); err != nil {
			return none, invalid("--for: %w", err)
		}
	}
	if err := CheckConfirm(policy, reason); err != nil {
		return none, err
	}
	l := action.Ladder{Store: s.Actions(), Account: account, Actor: who, Clock: rt.Clock}
	confirmed, err := l.Confirm(ctx, policy, reason, end)
	if errors.Is(err, action.ErrNoFuse) {
		return none, &Error{Code: "not_found", Err: err, Hint: "`curfew confirm` lists the fuses that have blown"}
	}
	return view.NewFuses(confirmed), err
}

// Fuses are those that have blown and are not confirmed.
func (rt *Runtime) Fuses(ctx context.Context) (view.Fuses, error) {
	var none view.Fuses
	_, s, err := rt.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	all, err := s.Actions().Fuses(ctx)
	if err != nil {
		return none, fmt.Errorf("list the fuses: %w", err)
	}
	all = slices.DeleteFunc(all, func(f action.Fuse) bool { return !f.Stands() })
	return view.NewFuses(all), nil
}

// scratchTag is what the owner of a machine writes on it to consent.
var scratchTag = map[string]string{inventory.TagDisks: "scratch"}

// Consent lets the disks of one machine be lost when policies end it: it writes the tag that
// says so, and an entry in the audit log.
func (rt *Runtime) Consent(ctx context.Context, f Source, name, reason string) (view.Consent, error) {
	var none view.Consent
	if strings.TrimSpace(reason) == "" {
		return none, invalid("curfew consent %s: give --reason, so that others know why its disks may be lost", name)
	}
	cfg, err := rt.Config()
	if err != nil {
		return none, err
	}
	who, err := rt.Person(cfg)
	if err != nil {
		return none, err
	}
	ref, err := rt.Resolve(ctx, cfg, name)
	if err != nil {
		return none, err
	}
	if ref.Kind != inventory.KindInstance || ref.Cloud != "aws" {
		return none, invalid("curfew consent %s: it is about machines of AWS, and this is of kind %s", ref, ref.Kind)
	}
	book, err := rt.PriceBook(cfg)
	if err != nil {
		return none, err
	}
	f.Regions = []string{ref.Region}
	lister, err := rt.Lister(ctx, f, cfg, book, rt.Now().UTC())
	if err != nil {
		return none, err
	}
	cloud, ok := lister.(*AWS)
	if !ok {
		return none, invalid("curfew consent %s: nothing is carried out there", ref)
	}
	seen, err := cloud.List(ctx, round.Query{Now: rt.Now().UTC(), Only: map[inventory.Ref]bool{ref: true}})
	if err != nil {
		return none, CloudError(err)
	}
	byHand := fmt.Sprintf("by hand: aws ec2 create-tags --region %s --resources %s --tags Key=%s,Value=scratch",
		plain.Shell(ref.Region), plain.Shell(ref.ID), inventory.TagDisks)
	if len(seen.Resources) != 1 {
		return none, &Error{Code: "not_found", Err: fmt.Errorf("consent %s: the machine could not be read", ref), Hint: byHand}
	}
	r := seen.Resources[0]
	book.Fill(r)
	s, err := rt.Open(ctx, cfg)
	if err != nil {
		return none, err
	}
	defer s.Close()
	now, err := rt.InTime(ctx, s)
	if err != nil {
		return none, err
	}
	lost := lossesOf(r)
	entry := action.Entry{At: now, Account: ref.Cloud + "/" + ref.Account, Actor: who, What: "consent", Resource: ref.String(),
		Because: action.Redact(reason), Outcome: "may lose " + strings.Join(lost, "; ")}
	if err := s.Actions().Record(ctx, entry); err != nil {
		return none, fmt.Errorf("record the consent: %w", err)
	}
	if err := WriteTags(ctx, cloud.Actions(), r, scratchTag, "consent-"+ref.ID); err != nil {
		return none, &Error{Code: "not_tagged", Err: fmt.Errorf("consent %s: %w", ref, err), Hint: byHand}
	}
	return view.Consent{Schema: view.ConsentSchema, Resource: ref.String(), Loses: lost, Reason: action.Redact(reason), By: who}, nil
}

// lossesOf are the disks that a machine loses if policies terminate it.
func lossesOf(r *inventory.Resource) []string {
	out := []string{}
	for _, l := range action.Losses(r, policy.Do{Verb: policy.Terminate}) {
		out = append(out, l.String())
	}
	return out
}
