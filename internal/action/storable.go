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

// Storable returns a copy of the item in the form of every store: times in UTC to the microsecond,
// texts for people as plain UTF-8. It fails for an item without an id, or with calls that would not
// be stored byte for byte.
func (it Item) Storable() (Item, error) {
	if it.ID == "" {
		return it, errors.New("it has no id")
	}
	it = it.clone()
	it.Because, it.Alarm = storable(it.Because), storable(it.Alarm)
	for _, t := range []*time.Time{
		&it.FirstAt, &it.WarnedAt, &it.GraceFrom, &it.ConditionHeldUntil, &it.ApprovedAt, &it.UpdatedAt,
	} {
		*t = truncateTime(*t)
	}
	for i := range it.Steps {
		s := &it.Steps[i]
		for _, t := range []*time.Time{
			&s.IntentAt, &s.RepeatedAt, &s.AcceptedAt, &s.ConfirmedAt, &s.RefusedAt, &s.FailedAt,
		} {
			*t = truncateTime(*t)
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

// clone returns the item with copies of its slices and maps.
func (it Item) clone() Item {
	it.Gang, it.Recipients, it.Steps = slices.Clone(it.Gang), slices.Clone(it.Recipients), slices.Clone(it.Steps)
	it.Do.Tags, it.Do.Members = maps.Clone(it.Do.Tags), slices.Clone(it.Do.Members)
	if it.Briefing != nil {
		b := it.Briefing.clone()
		it.Briefing = &b
	}
	return it
}

// Storable returns a copy of the entry in the form of every audit log. It fails without a time.
func (e Entry) Storable() (Entry, error) {
	if e.At.IsZero() {
		return e, fmt.Errorf("record %q: it has no time", e.What)
	}
	e.At, e.Actor, e.Because, e.Outcome = truncateTime(e.At), storable(e.Actor), storable(
		e.Because), storable(e.Outcome)
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

// StorableBlown returns a blown fuse in the form of every store, and its entry.
func (f Fuse) StorableBlown() (Fuse, Entry) {
	f.At, f.Items = truncateTime(f.At), slices.Clone(f.Items)
	f.ConfirmedAt, f.By, f.Reason, f.Until = time.Time{}, "", "", time.Time{}
	return f, Entry{At: f.At, Account: f.Account, Actor: "policy " + f.Source, What: EventFuse, Because: f.String()}
}

// StorableConfirmed returns a confirmed fuse in the form of every store, and the entry of the
// confirmation.
func (f Fuse) StorableConfirmed() (Fuse, Entry) {
	f.At, f.ConfirmedAt, f.Until, f.Reason = truncateTime(f.At), truncateTime(f.ConfirmedAt), truncateTime(
		f.Until), storable(f.Reason)
	return f, Entry{
		At: f.ConfirmedAt, Account: f.Account, Actor: f.By, What: EventConfirm, Because: f.Reason,
		Outcome: "policy " + f.Source + ": " + f.confirmedText(),
	}
}

// Validate returns an error for a batch with admissions of another account or source, or without an
// intent.
func (b Batch) Validate() error {
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

// truncateTime returns a time in UTC to the microsecond; zero stays zero.
func truncateTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

// storable returns a text for people that any database accepts: providers' messages may contain
// invalid bytes, and must still be recorded.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
