package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/usage"
)

// lines reads the entries that match a query.
func lines(t *testing.T, b *Backend, q action.Query) []action.Entry {
	t.Helper()
	var out []action.Entry
	no(t, b.Actions.Entries(t.Context(), q, func(e action.Entry) error {
		out = append(out, e)
		return nil
	}))
	return out
}

// numbered returns n entries, a minute apart, of three items in turn.
func numbered(n int) []action.Entry {
	out := make([]action.Entry, n)
	for i := range out {
		out[i] = entry("warned", machine(fmt.Sprint(i%3)))
		out[i].At, out[i].Round = noon.Add(time.Duration(i)*time.Minute), int64(i+1)
	}
	return out
}

var audits = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		e := filled[action.Entry]()
		no(t, b.Actions.Record(t.Context(), e))
		e.ID = 1
		if diff := cmp.Diff([]action.Entry{e}, lines(t, b.Reopen(t), action.Query{})); diff != "" {
			t.Errorf("the entry (-want +got):\n%s", diff)
		}
	}},
	{"what is not text is recorded all the same", func(t *testing.T, b *Backend) {
		e := entry("outcome", machine("a"))
		e.Outcome, e.Because = "failed: \xff\x00", "\x00"
		e.Evidence = []usage.Evidence{{Signal: "gpu_util_max_pct", Value: "\xfe", Coverage: math.NaN()}}
		no(t, b.Actions.Record(t.Context(), e))
		if got := lines(t, b, action.Query{}); len(got) != 1 || got[0].Evidence[0].Coverage != usage.NoCoverage {
			t.Errorf("recorded %+v", got)
		}
	}},
	{"what is changed afterwards is not recorded", func(t *testing.T, b *Backend) {
		e := filled[action.Entry]()
		no(t, b.Actions.Record(t.Context(), e))
		want := lines(t, b, action.Query{})[0].Evidence[0].Value
		e.Evidence[0].Value = "x"
		lines(t, b, action.Query{})[0].Evidence[0].Value = "x"
		if got := lines(t, b, action.Query{})[0].Evidence[0].Value; got != want {
			t.Errorf("recorded is %q, was %q", got, want)
		}
	}},
	{"comes back in the order of recording, in many pages", func(t *testing.T, b *Backend) {
		all := numbered(1203)
		// The clock is set back meanwhile; the order must stay.
		all[700].At = noon.Add(-time.Hour)
		no(t, b.Actions.Record(t.Context(), all...))
		got := lines(t, b, action.Query{})
		if len(got) != len(all) {
			t.Fatalf("%d entries, want %d", len(got), len(all))
		}
		for i, e := range got {
			if e.Round != int64(i+1) || e.ID != int64(i+1) {
				t.Fatalf("entry %d is number %d with id %d", i+1, e.Round, e.ID)
			}
		}
	}},
	{"queries", queries},
	{"a visit ends it by its error", func(t *testing.T, b *Backend) {
		no(t, b.Actions.Record(t.Context(), numbered(10)...))
		enough, n := errors.New("enough"), 0
		err := b.Actions.Entries(t.Context(), action.Query{}, func(action.Entry) error {
			if n++; n == 3 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || n != 3 {
			t.Errorf("%d visits and %v, want 3 and the visit's error", n, err)
		}
	}},
	{"is read on while it is handed out", func(t *testing.T, b *Backend) {
		no(t, b.Actions.Record(t.Context(), numbered(2000)...))
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := b.Actions.Entries(ctx, action.Query{}, func(action.Entry) error {
			n++
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || n == 2000 {
			t.Errorf("canceled at the first of 2000: %d visits, error %v", n, err)
		}
	}},
	{"a visit may write, and what it records is not handed out", func(t *testing.T, b *Backend) {
		no(t, b.Actions.Record(t.Context(), numbered(1001)...))
		n := 0
		no(t, b.Actions.Entries(t.Context(), action.Query{}, func(e action.Entry) error {
			if n++; n%100 == 0 {
				return b.Actions.Record(t.Context(), entry("outcome", machine(e.Item)))
			}
			return nil
		}))
		if n != 1001 {
			t.Errorf("%d visits, want 1001", n)
		}
	}},
	{"recording at once leaves no gap and nothing out", func(t *testing.T, b *Backend) {
		const workers, each = 5, 10
		var wg sync.WaitGroup
		for worker := range workers {
			s := b.Reopen(t).Actions
			wg.Go(func() {
				for i := range each {
					e := entry("warned", machine(fmt.Sprint(worker)))
					e.Round = int64(i)
					if err := s.Record(t.Context(), e, e); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		next := map[string]int64{}
		for i, e := range lines(t, b, action.Query{}) {
			if e.ID != int64(i+1) {
				t.Fatalf("entry %d has id %d", i+1, e.ID)
			}
			if want := next[e.Item] / 2; e.Round != want {
				t.Fatalf("entry %d of worker %s is number %d, want %d", e.ID, e.Item, e.Round, want)
			}
			next[e.Item]++
		}
		for worker, n := range next {
			if n != 2*each {
				t.Errorf("%d entries of worker %s, want %d", n, worker, 2*each)
			}
		}
		b.Check(t)
	}},
}

func queries(t *testing.T, b *Backend) {
	all := numbered(9)
	all[1].What, all[2].Account, all[3].Actor = "refused", "aws/other", "ana"
	all[4].Resource = "aws/1/us-east-1/bucket/100%_Data"
	no(t, b.Actions.Record(t.Context(), all...))
	for _, tc := range []struct {
		name string
		q    action.Query
		want []int64
	}{
		{"everything", action.Query{}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"since", action.Query{Since: noon.Add(7 * time.Minute)}, []int64{8, 9}},
		{"until", action.Query{Until: noon.Add(2 * time.Minute)}, []int64{1, 2}},
		{
			"since and until", action.Query{Since: noon.Add(time.Minute), Until: noon.Add(3 * time.Minute)},
			[]int64{2, 3},
		},
		{"what", action.Query{What: "refused"}, []int64{2}},
		{"account", action.Query{Account: "aws/other"}, []int64{3}},
		{"actor", action.Query{Actor: "ana"}, []int64{4}},
		{"item", action.Query{Item: "0"}, []int64{1, 4, 7}},
		{"item and until", action.Query{Item: "0", Until: noon.Add(6 * time.Minute)}, []int64{1, 4}},
		{"part of a resource", action.Query{Resource: "instance/i-2"}, []int64{3, 6, 9}},
		{"part of a resource in another case", action.Query{Resource: "100%_data"}, nil},
		{"signs of patterns are plain", action.Query{Resource: "0%_D"}, []int64{5}},
		{"a pattern is none", action.Query{Resource: "aws%i-2"}, nil},
		{"the newest", action.Query{Limit: 2}, []int64{8, 9}},
		{"the newest of an item", action.Query{Item: "0", Limit: 2}, []int64{4, 7}},
		{"a limit above all", action.Query{Item: "0", Limit: 20}, []int64{1, 4, 7}},
		{"a limit of what is not there", action.Query{Item: "none", Limit: 2}, nil},
	} {
		var got []int64
		for _, e := range lines(t, b, tc.q) {
			got = append(got, e.ID)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
