package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/money"
)

// march is the billing period of most tests.
var march = bill.PeriodKey{Account: "123456789012", Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}

// billed returns a row of a resource on a day of March, 0 to 30, that costs a dollar.
func billed(day int, resource string) bill.Row {
	return bill.Row{
		Account: march.Account, Start: march.Start, Day: march.Start.AddDate(0, 0, day),
		Provider: "AWS", Resource: resource,
		Service: "Amazon EC2", Category: bill.Compute, ChargeCategory: bill.Usage,
		Cost: bill.Cost{Billed: money.USD, Effective: money.USD, List: money.USD, Contracted: money.USD}, Lines: 1,
	}
}

// statement replaces the period with a digest by rows.
func statement(key bill.PeriodKey, replaces, digest string, rows ...bill.Row) bill.Replacement {
	r := bill.Replacement{
		Period: bill.Period{
			PeriodKey: key, Digest: digest, Source: "bill.csv", Rows: int64(len(rows)), ImportedAt: noon,
		},
		Replaces: replaces, Content: slices.Values(rows),
	}
	for _, row := range rows {
		r.Lines += row.Lines
		r.Total.Billed += row.Cost.Billed
	}
	return r
}

// replaced replaces periods and requires success.
func replaced(t *testing.T, b *Backend, all ...bill.Replacement) {
	t.Helper()
	no(t, b.Bills.Replace(t.Context(), all))
}

// rowsOf reads rows.
func rowsOf(t *testing.T, seq iter.Seq2[bill.Row, error]) []bill.Row {
	t.Helper()
	var out []bill.Row
	for row, err := range seq {
		no(t, err)
		out = append(out, row)
	}
	return out
}

// digests returns the stored digests by account and start.
func digests(t *testing.T, b *Backend) map[bill.PeriodKey]string {
	t.Helper()
	out := map[bill.PeriodKey]string{}
	for _, p := range must(b.Bills.Periods(t.Context(), time.Time{}, time.Time{}))(t) {
		out[p.PeriodKey] = p.Digest
	}
	return out
}

var bills = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		row := filled[bill.Row]()
		r := bill.Replacement{Period: filled[bill.Period](), Content: slices.Values([]bill.Row{row})}
		r.Rows, row.Account, row.Start = 1, r.Account, r.Start
		replaced(t, b, r)
		other := b.Reopen(t).Bills
		if diff := cmp.Diff([]bill.Period{
			r.Period,
		}, must(other.Periods(t.Context(), time.Time{}, time.Time{}))(t)); diff !=
			"" {
			t.Errorf("the periods (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]bill.Row{row}, rowsOf(t, other.Rows(t.Context(), bill.Query{}))); diff != "" {
			t.Errorf("the rows (-want +got):\n%s", diff)
		}
	}},
	{"a period is replaced whole, restated, shrunk and removed", func(t *testing.T, b *Backend) {
		april := bill.PeriodKey{Account: march.Account, Start: march.Start.AddDate(0, 1, 0)}
		other := bill.PeriodKey{Account: "another", Start: march.Start}
		replaced(t, b, statement(march, "", "d1", billed(0, "i-1"), billed(1, "i-1"), billed(1, "i-2")),
			statement(april, "", "a1", billed(31, "i-1")), statement(other, "", "o1", billed(0, "i-9")))
		for _, step := range []struct {
			name          string
			before, after string
			rows          []bill.Row
		}{
			{
				"restated", "d1", "d2",
				[]bill.Row{billed(0, "i-1"), billed(1, "i-3"), billed(2, "i-1"), billed(3, "i-1")},
			},
			{"shrunk", "d2", "d3", []bill.Row{billed(1, "i-3")}},
			{"emptied", "d3", "d4", nil},
			{"restored", "d4", "d1", []bill.Row{billed(0, "i-1"), billed(1, "i-1")}},
		} {
			replaced(t, b, statement(march, step.before, step.after, step.rows...))
			got := rowsOf(t, b.Bills.Rows(t.Context(), bill.Query{
				Starts: []time.Time{march.Start}, Accounts: []string{march.Account},
			}))
			if diff := cmp.Diff(step.rows, got); diff != "" {
				t.Errorf("%s: rows (-want +got):\n%s", step.name, diff)
			}
			if got, want := digests(t, b), map[bill.PeriodKey]string{
				march: step.after, april: "a1", other: "o1",
			}; !maps.Equal(got, want) {
				t.Errorf("%s: periods %v, want %v", step.name, got, want)
			}
		}
		replaced(t, b, bill.Replacement{Period: bill.Period{PeriodKey: march}, Replaces: "d1"})
		if got, want := digests(t, b), map[bill.PeriodKey]string{april: "a1", other: "o1"}; !maps.Equal(got, want) {
			t.Errorf("removed: periods %v, want %v", got, want)
		}
		if got := rowsOf(t, b.Bills.Rows(t.Context(), bill.Query{})); len(got) != 2 {
			t.Errorf("removed: %d rows are left, want those of the two others", len(got))
		}
	}},
	{"one period of many that was changed changes none", func(t *testing.T, b *Backend) {
		april := bill.PeriodKey{Account: march.Account, Start: march.Start.AddDate(0, 1, 0)}
		replaced(t, b, statement(march, "", "d1", billed(0, "i-1")))
		for name, second := range map[string]bill.Replacement{
			"another digest":          statement(march, "d0", "d2", billed(2, "i-2")),
			"nothing was thought":     statement(march, "", "d2", billed(2, "i-2")),
			"the same once more":      statement(march, "", "d1", billed(0, "i-1")),
			"removed by another":      {Period: bill.Period{PeriodKey: march}, Replaces: "d0"},
			"removed, thought absent": {Period: bill.Period{PeriodKey: march}},
			"absent, thought there":   statement(bill.PeriodKey{Account: "new", Start: march.Start}, "d1", "d2"),
		} {
			err := b.Bills.Replace(t.Context(), []bill.Replacement{
				statement(april, "", "a1", billed(31, "i-1")), second,
			})
			if !errors.Is(err, bill.ErrChanged) {
				t.Errorf("%s: got %v, want ErrChanged", name, err)
			}
			if got, want := digests(t, b), map[bill.PeriodKey]string{march: "d1"}; !maps.Equal(got, want) {
				t.Errorf("%s: periods %v, want %v", name, got, want)
			}
		}
		if got := rowsOf(t, b.Bills.Rows(t.Context(), bill.Query{})); len(got) != 1 || got[0].Resource != "i-1" {
			t.Errorf("rows %+v", got)
		}
		replaced(t, b)
	}},
	{"what cannot be kept is refused", func(t *testing.T, b *Backend) {
		undated, broken := billed(0, "i-1"), billed(0, "i-\xff")
		undated.Day = time.Time{}
		miscounted := statement(march, "", "d", billed(0, "i-1"))
		miscounted.Rows++
		for name, all := range map[string][]bill.Replacement{
			"no digest":          {statement(march, "", "", billed(0, "i-1"))},
			"no start":           {statement(bill.PeriodKey{Account: "a"}, "", "d", billed(0, "i-1"))},
			"given twice":        {statement(march, "", "d"), statement(march, "", "d")},
			"a row without day":  {statement(march, "", "d", undated)},
			"a row without text": {statement(march, "", "d", broken)},
			"miscounted":         {miscounted},
		} {
			if err := b.Bills.Replace(t.Context(), all); err == nil || errors.Is(err, bill.ErrChanged) {
				t.Errorf("%s: got %v", name, err)
			}
			if got := digests(t, b); len(got) != 0 {
				t.Errorf("%s: left %v", name, got)
			}
		}
	}},
	{"periods in a time, in their order", func(t *testing.T, b *Backend) {
		var all []bill.Replacement
		for i, key := range []bill.PeriodKey{
			{Account: "b", Start: march.Start}, {Account: "B", Start: march.Start}, {Account: "ä", Start: march.Start},
			{Account: "a", Start: march.Start.AddDate(0, 1, 0)}, {Account: "z", Start: march.Start.AddDate(0, -1, 0)},
		} {
			all = append(all, statement(key, "", fmt.Sprint("d", i)))
		}
		replaced(t, b, all...)
		for _, tc := range []struct {
			name     string
			from, to time.Time
			want     string
		}{
			{"all", time.Time{}, time.Time{}, "z B b ä a"},
			{"from", march.Start, time.Time{}, "B b ä a"},
			{"to", time.Time{}, march.Start, "z"},
			{"both", march.Start, march.Start.AddDate(0, 1, 0), "B b ä"},
		} {
			var got []string
			for _, p := range must(b.Bills.Periods(t.Context(), tc.from, tc.to))(t) {
				got = append(got, p.Account)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
			}
		}
	}},
	{"rows come in their order, those that are asked for", billQueries},
	{"rows stay those of one import while another replaces them", func(t *testing.T, b *Backend) {
		before, after := make([]bill.Row, 5000), make([]bill.Row, 5000)
		for i := range before {
			before[i], after[i] = billed(i%31, fmt.Sprint("old-", i)), billed(i%31, fmt.Sprint("new-", i))
		}
		replaced(t, b, statement(march, "", "old", before...))
		n, other := 0, b.Reopen(t)
		for row, err := range b.Bills.Rows(t.Context(), bill.Query{}) {
			no(t, err)
			if n++; n == 1 {
				replaced(t, other, statement(march, "old", "new", after...))
			}
			if !strings.HasPrefix(row.Resource, "old-") {
				t.Fatalf("row %d is %s", n, row.Resource)
			}
		}
		if n != len(before) {
			t.Errorf("%d rows, want %d", n, len(before))
		}
		for row, err := range b.Bills.Rows(t.Context(), bill.Query{}) {
			if err != nil || row.Resource != "new-0" {
				t.Errorf("afterwards the first row is %s, %v", row.Resource, err)
			}
			break
		}
	}},
	{"of many imports at once one wins", func(t *testing.T, b *Backend) {
		for _, replaces := range []string{"", "old"} {
			if replaces != "" {
				replaced(t, b, statement(march, digests(t, b)[march], replaces))
			}
			var won atomic.Int64
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for worker := range 6 {
				s := b.Reopen(t).Bills
				wg.Go(func() {
					<-begin
					resource := fmt.Sprint("i-", worker)
					err := s.Replace(t.Context(), []bill.Replacement{
						statement(march, replaces, resource, billed(0, resource), billed(1, resource)),
					})
					switch {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, bill.ErrChanged):
						t.Error(err)
					}
				})
			}
			close(begin)
			wg.Wait()
			rows := rowsOf(t, b.Bills.Rows(t.Context(), bill.Query{}))
			if won.Load() != 1 || len(rows) != 2 || rows[0].Resource != rows[1].Resource ||
				rows[0].Resource != digests(t, b)[march] {
				t.Errorf("over %q: %d imports won; rows %+v", replaces, won.Load(), rows)
			}
		}
	}},
}

// billQueries queries parts of a bill.
func billQueries(t *testing.T, b *Backend) {
	april := bill.PeriodKey{Account: "9", Start: march.Start.AddDate(0, 1, 0)}
	volume := billed(2, "vol-1")
	volume.Category = bill.Storage
	late := billed(30, "i-late")
	late.Account, late.Start = april.Account, april.Start
	second := billed(1, "i-2")
	second.Service = "AmazonCloudWatch"
	replaced(t, b, statement(april, "", "a", late),
		statement(march, "", "d", billed(2, "i-1"), volume, billed(1, "i-2"),
			second, billed(0, "i-3")))
	for _, tc := range []struct {
		name string
		q    bill.Query
		want string
	}{
		{"all", bill.Query{}, "i-3 i-2 i-2 i-1 vol-1 i-late"},
		{"from a day", bill.Query{From: march.Start.AddDate(0, 0, 2)}, "i-1 vol-1 i-late"},
		{"to a day", bill.Query{To: march.Start.AddDate(0, 0, 1)}, "i-3"},
		{"a period", bill.Query{Starts: []time.Time{april.Start}}, "i-late"},
		{"two periods", bill.Query{Starts: []time.Time{april.Start, march.Start}}, "i-3 i-2 i-2 i-1 vol-1 i-late"},
		{"an account", bill.Query{Accounts: []string{"9", "8"}}, "i-late"},
		{"resources", bill.Query{Resources: []string{"i-1", "i-3", "none"}}, "i-3 i-1"},
		{"a category", bill.Query{Categories: []bill.Category{bill.Storage}}, "vol-1"},
		{
			"all of it together",
			bill.Query{
				From: march.Start, Categories: []bill.Category{bill.Compute}, Resources: []string{"i-2", "vol-1"},
			},
			"i-2 i-2",
		},
		{"nothing", bill.Query{Resources: []string{""}}, ""},
		{"none of no resources", bill.Query{Resources: []string{}}, ""},
		{"none of no periods", bill.Query{Starts: []time.Time{}}, ""},
	} {
		var got []string
		for _, row := range rowsOf(t, b.Bills.Rows(t.Context(), tc.q)) {
			got = append(got, row.Resource)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if rows := rowsOf(t, b.Bills.Rows(t.Context(), bill.Query{Resources: []string{"i-2"}})); rows[0].Service !=
		"Amazon EC2" {
		t.Error("rows of one resource and day are not in the order in which they were given")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	for _, err := range b.Bills.Rows(canceled, bill.Query{}) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Errorf("after a cancellation: got %v", err)
		}
	}
	if n != 1 {
		t.Errorf("after a cancellation: %d results, want the error alone", n)
	}
}

// importForever imports statements in turn, each with its number in the rows, and returns the last
// one it was told was replaced.
func importForever(ctx context.Context, s bill.Store, out io.Writer) error {
	before := ""
	for i := 0; ; i++ {
		digest := fmt.Sprintf("d%06d", i)
		rows := make([]bill.Row, 1500+i%7)
		for j := range rows {
			rows[j] = billed(j%31, digest)
		}
		if err := s.Replace(ctx, []bill.Replacement{statement(march, before, digest, rows...)}); err != nil {
			return err
		}
		fmt.Fprintln(out, digest)
		before = digest
	}
}

// killedImport kills an import: the stored statement must be complete and not older than the last
// confirmed one.
func killedImport(t *testing.T, b *Backend) {
	p := spawn(t, b, Job{Do: "import"})
	p.begin(t)
	told := ""
	for range 3 {
		if !p.lines.Scan() {
			t.Fatalf("the child ended: %v", p.lines.Err())
		}
		told = p.lines.Text()
	}
	time.Sleep(7 * time.Millisecond) // during a replacement
	no(t, p.cmd.Process.Kill())
	for _, line := range p.rest() {
		told = line
	}
	_ = p.cmd.Wait() // it was killed
	after := b.Reopen(t)
	kept := must(after.Bills.Periods(t.Context(), time.Time{}, time.Time{}))(t)
	if len(kept) != 1 || kept[0].Digest < told {
		t.Fatalf("kept %+v; %s was told", kept, told)
	}
	rows := rowsOf(t, after.Bills.Rows(t.Context(), bill.Query{}))
	if int64(len(rows)) != kept[0].Rows {
		t.Errorf("%d rows of %d", len(rows), kept[0].Rows)
	}
	for _, row := range rows {
		if row.Resource != kept[0].Digest {
			t.Fatalf("a row is of %s, the period of %s", row.Resource, kept[0].Digest)
		}
	}
	after.Check(t)
	replaced(t, after, statement(march, kept[0].Digest, "after", billed(0, "i-1")))
}
