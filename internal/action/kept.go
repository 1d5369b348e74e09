package action

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Kept returns the item as every store keeps it, and shares nothing with it: times in
// UTC to the microsecond, texts for people as plain UTF-8. An item without an id is
// refused, and one whose calls would not come back byte for byte.
func (it Item) Kept() (Item, error) {
	if it.ID == "" {
		return it, errors.New("it has no id")
	}
	it = it.clone()
	it.Because, it.Alarm = storable(it.Because), storable(it.Alarm)
	for _, t := range []*time.Time{
		&it.FirstAt, &it.WarnedAt, &it.GraceFrom, &it.HeldTo, &it.ApprovedAt, &it.UpdatedAt,
	} {
		*t = instant(*t)
	}
	for i := range it.Steps {
		s := &it.Steps[i]
		for _, t := range []*time.Time{
			&s.IntentAt, &s.RepeatedAt, &s.AcceptedAt, &s.ConfirmedAt, &s.RefusedAt, &s.FailedAt,
		} {
			*t = instant(*t)
		}
		s.Error, s.Refused = storable(s.Error), storable(s.Refused)
		for _, text := range [...]string{s.Key, s.Params, s.Undo, s.Receipt} {
			if text != storable(text) {
				return it, fmt.Errorf("step %s: its text is not plain UTF-8 and cannot be kept byte for byte", s.Name)
			}
		}
	}
	return it, nil
}

// clone returns the item with slices and maps of its own.
func (it Item) clone() Item {
	it.Gang, it.Recipients, it.Steps = slices.Clone(it.Gang), slices.Clone(it.Recipients), slices.Clone(it.Steps)
	it.Do.Tags, it.Do.Members = maps.Clone(it.Do.Tags), slices.Clone(it.Do.Members)
	if it.Briefing != nil {
		b := it.Briefing.clone()
		it.Briefing = &b
	}
	return it
}

// Kept returns the entry as every audit log keeps it, and shares nothing with it. One
// without a time is refused.
func (e Entry) Kept() (Entry, error) {
	if e.At.IsZero() {
		return e, fmt.Errorf("record %q: it has no time", e.What)
	}
	e.At, e.Actor, e.Because, e.Outcome = instant(e.At), storable(e.Actor), storable(e.Because), storable(e.Outcome)
	e.Evidence = slices.Clone(e.Evidence)
	for i := range e.Evidence {
		v := &e.Evidence[i]
		v.Value = storable(v.Value)
		if math.IsNaN(v.Coverage) || math.IsInf(v.Coverage, 0) {
			v.Coverage = usage.NoCoverage // JSON has no such numbers
		}
	}
	return e, nil
}

// Blown returns a fuse as every store keeps it when it has blown, and what is recorded
// of it.
func (f Fuse) Blown() (Fuse, Entry) {
	f.At, f.Items = instant(f.At), slices.Clone(f.Items)
	f.ConfirmedAt, f.By, f.Reason, f.Until = time.Time{}, "", "", time.Time{}
	return f, Entry{At: f.At, Account: f.Account, Actor: "policy " + f.Source, What: EventFuse, Because: f.String()}
}

// Confirmed returns a fuse as every store keeps it when a person has confirmed it, and
// what is recorded of that.
func (f Fuse) Confirmed() (Fuse, Entry) {
	f.At, f.ConfirmedAt, f.Until, f.Reason = instant(f.At), instant(f.ConfirmedAt), instant(
		f.Until), storable(f.Reason)
	return f, Entry{
		At: f.ConfirmedAt, Account: f.Account, Actor: f.By, What: EventConfirm, Because: f.Reason,
		Outcome: "policy " + f.Source + ": " + f.meant(),
	}
}

// Admissible refuses a batch that would be counted where it does not belong, or acted
// on without an intent.
func (b Batch) Admissible() error {
	for _, adm := range b.Admissions {
		it := adm.Item
		switch {
		case it.Account != b.Account || it.Source != b.Source:
			return fmt.Errorf("item %s is of %s in %s", it.ID, it.Source, it.Account)
		case it.Phase != Acting || it.Step < 0 || it.Step >= len(it.Steps) || it.Steps[it.Step].Key == "" ||
			it.Steps[it.Step].IntentAt.IsZero():
			return fmt.Errorf("item %s holds no intent", it.ID)
		case adm.Hourly < 0:
			return fmt.Errorf("item %s costs %s an hour", it.ID, adm.Hourly)
		}
	}
	return nil
}

// instant returns a time in UTC to the microsecond; zero stays zero.
func instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

// storable returns a text for people as any database takes it: providers' messages may
// hold bytes that are no text, and must not keep an outcome from being recorded.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
