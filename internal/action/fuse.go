package action

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// fuseLeast is the number of due machines that a fuse always allows.
const fuseLeast = 5

// WouldBlow reports whether that many due actions, of the machines that a policy selects, suggest a
// bad policy: more than five, and more than half of them.
func WouldBlow(due, selected int) bool { return due > fuseLeast && due > selected-due }

// Fuse guards against a bad policy: once blown, no action of its source is carried out in its
// account until a person confirms it.
type Fuse struct {
	Account, Source string
	At              time.Time
	// Due of the Selected machines were due at once; Items are their items, which a confirmation
	// covers.
	Due, Selected int
	Items         []string
	// ConfirmedAt is zero while it is blown; By confirmed it because of Reason. Until then, if set,
	// the fuse does not blow again.
	ConfirmedAt time.Time
	By, Reason  string
	Until       time.Time
}

// IsBlown reports whether the fuse waits for confirmation.
func (f *Fuse) IsBlown() bool { return f.ConfirmedAt.IsZero() }

// Name returns the name of the fuse.
func (f *Fuse) Name() string { return f.Source + " in " + f.Account }

// confirmedText describes what a person has confirmed.
func (f *Fuse) confirmedText() string {
	if f.Until.IsZero() {
		return fmt.Sprintf("the %d of %d machines", f.Due, f.Selected)
	}
	return fmt.Sprintf("the %d of %d machines, and whatever it selects until %s", f.Due,
		f.Selected, plain.Time(f.Until))
}

// String says why no action is carried out, and what a person can do.
func (f *Fuse) String() string {
	return fmt.Sprintf("the fuse has blown: %d of the %d machines that %s selects are due at once, so nothing is "+
		"carried out until a person confirms it: curfew confirm %s --reason TEXT",
		f.Due, f.Selected, f.Source, f.Source)
}

// ErrFuse is wrapped by the error of a batch whose source has a blown fuse.
var ErrFuse = errors.New("its fuse has blown")

// fuse returns the blown fuse of a source, blows it if too many actions are due at once, or returns
// nil. A dry run does not blow it.
func (s *pass) fuse(ctx context.Context, source string, due []candidate) (*Fuse, error) {
	if s.Assume.FuseConfirmed {
		return nil, nil
	}
	old := s.fuses[source]
	if old != nil && old.IsBlown() {
		return old, nil
	}
	var fresh []string
	for _, c := range due {
		if c.isFirst && c.item.Source == source && (old == nil || !slices.Contains(old.Items, c.item.ID)) {
			fresh = append(fresh, c.item.ID)
		}
	}
	now := s.Clock().Wall
	if !WouldBlow(len(fresh), s.Selected[source]) || (old != nil && now.Before(old.Until)) {
		return nil, nil
	}
	f := &Fuse{
		Account: s.Account, Source: source, At: now, Due: len(fresh), Selected: s.Selected[source], Items: fresh,
	}
	if !s.Enforce {
		return f, nil
	}
	if err := s.Store.Blow(ctx, *f, s.fuseNotices(f, due)...); err != nil {
		return nil, fmt.Errorf("record that the fuse of %s has blown: %w", source, err)
	}
	s.fuses[source] = f
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "alarm", slog.String("policy", source), slog.String("why", f.String()))
	}
	s.deliver(ctx)
	return f, nil
}

// fuseNotices notifies the policy's recipients that its fuse has blown. Owners and teams are those
// of the due machines, each notified once about one of them.
func (s *pass) fuseNotices(f *Fuse, due []candidate) (out []Notice) {
	told := map[string]bool{}
	for _, c := range due {
		p := s.proposed[itemKey{c.item.Ref, c.item.Source}]
		if c.item.Source != f.Source || p == nil {
			continue
		}
		b := s.briefing(c.item, *p)
		for _, to := range b.Recipients {
			n := Notice{
				Account: f.Account, Kind: noticeAlarm, Recipient: to, Alarm: f.String(), CreatedAt: f.At, DueAt: f.At,
				Briefing: Briefing{Recipients: b.Recipients},
			}
			key := to
			if to == recipientOwner || to == recipientTeam {
				n.Ref, n.Briefing = c.item.Ref, *b
				n.Briefing.Keep, n.Briefing.KeepTag, n.Briefing.Evidence = "", "", nil
				key += "-" + b.Owner.Team + "-" + b.Owner.User
			}
			n.ID = fmt.Sprintf("fuse-%s-%s-%d-%s", f.Account, f.Source, f.At.UnixMicro(), key)
			if !told[key] {
				told[key] = true
				out = append(out, n)
			}
		}
	}
	return out
}

// withoutBlownFuses removes and reports candidates held back by a fuse.
func (s *pass) withoutBlownFuses(ctx context.Context, due []candidate) ([]candidate, error) {
	blown := map[string]*Fuse{}
	for _, source := range sourcesOf(due) {
		f, err := s.fuse(ctx, source, due)
		if err != nil {
			return nil, err
		}
		blown[source] = f
	}
	return slices.DeleteFunc(slices.Clone(due), func(c candidate) bool {
		f := blown[c.item.Source]
		if f != nil {
			s.report.Fuses = appendFuse(s.report.Fuses, *f)
			s.reportItem(c.item, Line{Result: ResultFuse, Why: f.String(), Cap: CapFuse})
		}
		return f != nil
	}), nil
}

func appendFuse(all []Fuse, f Fuse) []Fuse {
	if slices.ContainsFunc(all, func(o Fuse) bool { return o.Source == f.Source && o.Account == f.Account }) {
		return all
	}
	return append(all, f)
}

// sourcesOf returns the sources of candidates, without duplicates.
func sourcesOf(all []candidate) []string {
	var out []string
	for _, c := range all {
		if !slices.Contains(out, c.item.Source) {
			out = append(out, c.item.Source)
		}
	}
	return out
}

// Confirm confirms the blown fuses of a policy; the store records it. It needs a reason. Until a
// time, if given, the fuse does not blow again: for a policy that ends most of what it selects by
// design, such as one that acts at night. It returns the confirmed fuses: those of the ladder's
// account, or of all accounts if it has none.
func (l *Ladder) Confirm(ctx context.Context, source, reason string, until time.Time) ([]Fuse, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, fmt.Errorf("confirm %s: give a reason, so that others know why so much is meant", source)
	}
	all, err := l.Store.Fuses(ctx)
	if err != nil {
		return nil, fmt.Errorf("confirm %s: %w", source, err)
	}
	var out []Fuse
	for _, f := range all {
		if f.Source != source || !f.IsBlown() || (l.Account != "" && f.Account != l.Account) {
			continue
		}
		f.ConfirmedAt, f.By, f.Reason, f.Until = l.Clock().Wall, l.Actor, Redact(reason), until
		if err := l.Store.Confirm(ctx, f); err != nil {
			return out, fmt.Errorf("confirm %s: %w", f.Name(), err)
		}
		out = append(out, f)
	}
	if out == nil {
		return nil, fmt.Errorf("confirm %s: %w", source, ErrNoFuse)
	}
	return out, nil
}

// ErrNoFuse is wrapped by the error that there is no fuse to confirm.
var ErrNoFuse = errors.New("no fuse of it has blown")
