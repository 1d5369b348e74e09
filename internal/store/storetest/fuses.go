package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
)

// blown is a fuse of the source of most tests.
func blown() action.Fuse {
	return action.Fuse{Account: account, Source: source, At: noon, Due: 6, Selected: 11, Items: []string{"a", "b"}}
}

func confirmed(f action.Fuse) action.Fuse {
	f.ConfirmedAt, f.By, f.Reason, f.Until = noon.Add(time.Hour), "ana", "it is meant", noon.Add(24*time.Hour)
	return f
}

var fuses = []test{
	{"holds its source back for every connection until a person confirms", func(t *testing.T, b *Backend) {
		f := blown()
		no(t, b.Actions.Blow(t.Context(), f))
		other := b.Reopen(t).Actions
		if _, err := other.Admit(t.Context(), batch("a")); !errors.Is(err, action.ErrFuse) {
			t.Errorf("it admits: %v", err)
		}
		nothing(t, b)
		for name, change := range map[string]func(*action.Batch){
			"another source":  func(b *action.Batch) { b.Source, b.Admissions = "other", nil },
			"another account": func(b *action.Batch) { b.Account, b.Admissions = "aws/other", nil },
		} {
			asked := batch("b")
			if change(&asked); must(other.Admit(t.Context(), asked))(t) == nil {
				t.Errorf("%s got no answer", name)
			}
		}
		if diff := cmp.Diff([]action.Fuse{f}, must(other.Fuses(t.Context()))(t)); diff != "" {
			t.Errorf("it is kept as (-want +got):\n%s", diff)
		}
		no(t, other.Confirm(t.Context(), confirmed(f)))
		if diff := cmp.Diff([]action.Fuse{confirmed(f)}, must(b.Actions.Fuses(t.Context()))(t)); diff != "" {
			t.Errorf("confirmed it is kept as (-want +got):\n%s", diff)
		}
		must(b.Actions.Admit(t.Context(), batch("c")))(t)
	}},
	{"one that stands stays as it is, one that is confirmed is replaced", func(t *testing.T, b *Backend) {
		f, later := blown(), blown()
		later.At, later.Due, later.Items = noon.Add(2*time.Hour), 9, []string{"c"}
		no(t, b.Actions.Blow(t.Context(), f))
		no(t, b.Actions.Blow(t.Context(), later))
		if diff := cmp.Diff([]action.Fuse{f}, must(b.Actions.Fuses(t.Context()))(t)); diff != "" {
			t.Errorf("while it stands (-want +got):\n%s", diff)
		}
		no(t, b.Actions.Confirm(t.Context(), confirmed(f)))
		no(t, b.Actions.Blow(t.Context(), later))
		if diff := cmp.Diff([]action.Fuse{later}, must(b.Actions.Fuses(t.Context()))(t)); diff != "" {
			t.Errorf("blown again (-want +got):\n%s", diff)
		}
	}},
	{"only the one that stands is confirmed", func(t *testing.T, b *Backend) {
		f := blown()
		if err := b.Actions.Confirm(t.Context(), confirmed(f)); !errors.Is(err, action.ErrConflict) {
			t.Errorf("none stands: %v", err)
		}
		no(t, b.Actions.Blow(t.Context(), f))
		another := confirmed(f)
		another.At = noon.Add(-time.Minute)
		if err := b.Actions.Confirm(t.Context(), another); !errors.Is(err, action.ErrConflict) {
			t.Errorf("another one stands: %v", err)
		}
		no(t, b.Actions.Confirm(t.Context(), confirmed(f)))
		if err := b.Actions.Confirm(t.Context(), confirmed(f)); !errors.Is(err, action.ErrConflict) {
			t.Errorf("it was confirmed before: %v", err)
		}
	}},
	{"is recorded", func(t *testing.T, b *Backend) {
		f := blown()
		no(t, b.Actions.Blow(t.Context(), f))
		no(t, b.Actions.Blow(t.Context(), f))
		no(t, b.Actions.Confirm(t.Context(), confirmed(f)))
		all := lines(t, b, action.Query{})
		if len(all) != 2 || all[0].What != "fuse" || all[0].Actor != "policy "+source || all[0].Account != account ||
			all[1].What != "confirm" || all[1].Actor != "ana" || all[1].Because != "it is meant" {
			t.Errorf("recorded %+v", all)
		}
	}},
	{"they come in the order of accounts and sources", func(t *testing.T, b *Backend) {
		var want []action.Fuse
		for _, f := range []action.Fuse{
			{Account: "aws/1", Source: "B"}, {Account: "aws/1", Source: "a"}, {Account: "aws/2", Source: "A"},
		} {
			f.At = noon
			want = append(want, f)
		}
		for _, i := range []int{2, 0, 1} {
			no(t, b.Actions.Blow(t.Context(), want[i]))
		}
		if diff := cmp.Diff(want, must(b.Actions.Fuses(t.Context()))(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}},
}
