package storetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// payer is the account of most tests.
var payer = ledger.Account{Cloud: "aws", ID: "123456789012"}

// thing returns the reference of a resource of payer.
func thing(region string, kind inventory.Kind, id string) inventory.Ref {
	return inventory.Ref{Cloud: payer.Cloud, Account: payer.ID, Region: region, Kind: kind, ID: id}
}

// charge returns an hour of a machine for a dollar.
func charge(hour time.Time, id string) ledger.Entry {
	return ledger.Entry{
		Kind: ledger.Accrual, Hour: hour, Round: noon, Sums: ledger.Sums{Seconds: 3600, Amount: money.USD},
		Line: ledger.Line{
			Ref: thing("us-east-1", inventory.KindInstance, id), Meter: "compute", Category: ledger.Compute,
			ChargeCategory: ledger.Usage,
			Pricing:        ledger.Standard, Duty: "busy", Monthly: 730 * money.USD, Source: "catalog", AsOf: noon,
			Attributes: ledger.Attributes{
				Name: id, Type: "p5.48xlarge", Owner: inventory.Owner{Team: "vision"}, Purpose: "training",
			},
		},
	}
}

// appended appends entries at the current version.
func appended(t *testing.T, s ledger.Store, entries ...ledger.Entry) {
	t.Helper()
	version := must(s.Version(t.Context(), payer))(t)
	must(s.Append(t.Context(), payer, version, entries))(t)
}

// everything queries all entries of any time.
func everything(by ...ledger.Dimension) ledger.SumQuery {
	return ledger.SumQuery{By: by, Since: noon.AddDate(-1, 0, 0), Until: noon.AddDate(1, 0, 0)}
}

// sight returns a round with observations of some of eight resources in two regions and of two
// kinds, not all of which were listed completely.
func sight(random *rand.Rand, at time.Time) (ledger.Round, []ledger.Observation) {
	r := ledger.Round{Account: payer, At: at, Source: "scan"}
	var all []ledger.Observation
	for _, region := range []string{"us-east-1", "eu-west-1"} {
		for _, kind := range []inventory.Kind{inventory.KindInstance, inventory.KindVolume} {
			if random.IntN(6) > 0 {
				r.Complete = append(r.Complete, ledger.Part{Region: region, Kind: kind})
			}
			for id := range 2 {
				if random.IntN(2) == 0 {
					continue
				}
				o := ledger.Observation{
					At: at, Ref: thing(region, kind, fmt.Sprint("r-", id)), State: inventory.StateRunning,
					CreatedAt: noon.AddDate(0, 0, -3),
					Attributes: ledger.Attributes{
						Name: "it", Owner: inventory.Owner{
							Team: []string{"vision", "", "nlp"}[random.IntN(8)/3],
						}, Purpose: "training",
					},
					Meters: []ledger.Meter{{
						Name: "hours", Category: ledger.Compute, Monthly: money.Amount(730+random.IntN(2)) * money.USD,
						Source: "catalog", AsOf: noon.AddDate(0, -1, 0),
					}},
				}
				if kind == inventory.KindInstance {
					o.Hold = []string{"", "", "h1"}[random.IntN(3)]
					o.Duty = []ledger.Span{{From: at.Add(-time.Hour), To: at, State: duty.Idle}}
				} else if id == 1 {
					o.Meters = append(o.Meters, ledger.Meter{
						Name: "iops", Category: ledger.Storage, Unpriced: "no price in the book",
					})
				}
				all = append(all, o)
			}
		}
	}
	return r, all
}

// sights returns two days of rounds with their observations, always the same.
func sights() (rounds []ledger.Round, observations [][]ledger.Observation) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 14 {
		r, o := sight(random, noon.Add(time.Duration(i*3)*time.Hour+time.Duration(random.IntN(3600))*time.Second))
		rounds, observations = append(rounds, r), append(observations, o)
	}
	return rounds, observations
}

// model returns an in-memory ledger with the first rounds of [sights] posted.
func model(t *testing.T, n int) *ledgertest.Store {
	t.Helper()
	s := ledgertest.NewStore()
	rounds, observations := sights()
	for i := range rounds[:n] {
		must(ledger.Post(t.Context(), s, rounds[i], observations[i]))(t)
	}
	return s
}

var ledgers = []test{
	{"the time is that of the state, to the minute", func(t *testing.T, b *Backend) {
		if off := time.Since(must(b.Reopen(t).Ledger.Now(t.Context()))(t)).Abs(); off > time.Minute {
			t.Errorf("it is off by %s", off)
		}
	}},
	{"every field comes back", ledgerFields},
	{"nothing is known of what was never seen", func(t *testing.T, b *Backend) {
		appended(t, b.Ledger, charge(noon, "i-1"))
		ref := thing("us-east-1", inventory.KindInstance, "i-none")
		h, _, err := b.Ledger.Histories(t.Context(), payer, []inventory.Ref{ref}, noon, noon.Add(time.Hour))
		if err != nil || len(h) != 1 || h[0].Ref != ref || len(h[0].Observations)+len(h[0].Posted) > 0 {
			t.Errorf("it is %+v, %v", h, err)
		}
	}},
	{"what is not text is recorded all the same", func(t *testing.T, b *Backend) {
		e := charge(noon, "i-1")
		e.Name, e.Owner.Team, e.Why = "\xff", "a\x00", "\xfe"
		appended(t, b.Ledger, e)
		o := ledger.Observation{At: noon, Ref: e.Ref, Attributes: e.Attributes}
		no(t, b.Ledger.Record(t.Context(), ledger.Round{Account: payer, At: noon, Source: "\xff"},
			[]ledger.Observation{o}))
		h, _, err := b.Ledger.Histories(t.Context(), payer, []inventory.Ref{e.Ref}, noon, noon.Add(time.Hour))
		if err != nil || h[0].Observations[0].Attributes != h[0].Posted[0].Attributes {
			t.Errorf("an entry and an observation with the same texts differ: %+v, %v", h, err)
		}
	}},
	{"what is of another account or time is refused", func(t *testing.T, b *Backend) {
		seen := ledger.Observation{At: noon, Ref: thing("us-east-1", inventory.KindInstance, "i-1")}
		late, foreign := seen, seen
		late.At, foreign.Ref.Account = noon.Add(time.Second), "9"
		for name, o := range map[string]ledger.Observation{"late": late, "foreign": foreign} {
			if err := b.Ledger.Record(t.Context(), ledger.Round{Account: payer, At: noon},
				[]ledger.Observation{seen, o}); err == nil {
				t.Errorf("%s: recorded", name)
			}
		}
		for name, change := range map[string]func(*ledger.Entry){
			"another account":   func(e *ledger.Entry) { e.Ref.Account = "9" },
			"another cloud":     func(e *ledger.Entry) { e.Ref.Cloud = "gcp" },
			"no hour":           func(e *ledger.Entry) { e.Hour = noon.Add(time.Second) },
			"no kind":           func(e *ledger.Entry) { e.Kind = "" },
			"a gap for a price": func(e *ledger.Entry) { e.Gap = ledger.Unobserved },
			"a broken hold":     func(e *ledger.Entry) { e.Hold = "\xff" },
		} {
			e := charge(noon, "i-2")
			change(&e)
			if _, err := b.Ledger.Append(t.Context(), payer, 0, []ledger.Entry{charge(noon, "i-1"), e}); err == nil ||
				errors.Is(err, ledger.ErrConflict) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if n := len(must(b.Ledger.Accounts(t.Context()))(t)); n != 0 {
			t.Errorf("%d accounts are left", n)
		}
	}},
	{"redelivery changes nothing, and what is new is pending again", func(t *testing.T, b *Backend) {
		rounds, observations := sights()
		r, seen := rounds[0], observations[0]
		step := func(name string, r ledger.Round, seen []ledger.Observation, wantVersion int64, wantPending int) {
			t.Helper()
			no(t, b.Ledger.Record(t.Context(), r, seen))
			if v, p := must(b.Ledger.Version(t.Context(), payer))(t), must(b.Ledger.Pending(t.Context(), payer))(
				t); v != wantVersion || len(p) != wantPending {
				t.Errorf("%s: version %d with %d pending, want %d with %d", name, v, len(p), wantVersion, wantPending)
			}
		}
		step("first", r, seen[:1], 1, 1)
		step("again", r, seen[:1], 1, 1)
		mark := must(b.Ledger.Pending(t.Context(), payer))(t)[0]
		step("with more resources", r, seen, 2, 1)
		no(t, b.Ledger.Settle(t.Context(), mark))
		step("an old mark settles nothing", r, seen, 2, 1)
		mark = must(b.Ledger.Pending(t.Context(), payer))(t)[0]
		no(t, b.Ledger.Settle(t.Context(), mark))
		step("settled", r, seen, 2, 0)
		changed := slices.Clone(seen)
		changed[0].Name, changed[0].Meters = "another", nil
		step("other words of the same observation", r, changed, 2, 0)
		more := r
		more.Complete, more.Source = append(slices.Clone(r.Complete), ledger.Part{
			Region: "ap-south-1", Kind: inventory.KindBucket,
		}), "enforce"
		step("with another part", more, nil, 3, 1)
		got := must(b.Ledger.Rounds(t.Context(), payer, noon, noon.AddDate(1, 0, 0)))(t)
		if len(got) != 1 || got[0].Source != "scan" || len(got[0].Complete) != len(more.Complete) {
			t.Errorf("the round is %+v", got)
		}
	}},
	{"entries are added at the version that was read", func(t *testing.T, b *Backend) {
		v := must(b.Ledger.Append(t.Context(), payer, 0, []ledger.Entry{charge(noon, "i-1")}))(t)
		same := must(b.Ledger.Append(t.Context(), payer, v, nil))(t)
		for _, stale := range []int64{0, v + 1} {
			for name, entries := range map[string][]ledger.Entry{"one": {charge(noon, "i-2")}, "none": nil} {
				if _, err := b.Ledger.Append(t.Context(), payer, stale, entries); !errors.Is(err, ledger.ErrConflict) {
					t.Errorf("%s at version %d of %d: got %v, want ErrConflict", name, stale, v, err)
				}
			}
		}
		if sums := must(b.Ledger.Sums(t.Context(), everything()))(t); v != 1 || same != v || len(sums) != 1 ||
			sums[0].Sums.Amount != money.USD {
			t.Errorf("versions %d, %d; sums %+v", v, same, sums)
		}
	}},
	{"of many appends at one version one is made", func(t *testing.T, b *Backend) {
		var made atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for worker := range 6 {
			s := b.Reopen(t).Ledger
			wg.Go(func() {
				<-begin
				_, err := s.Append(t.Context(), payer, 0, []ledger.Entry{charge(noon, fmt.Sprint("i-", worker))})
				if err == nil {
					made.Add(1)
				} else if !errors.Is(err, ledger.ErrConflict) {
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		if sums := must(b.Ledger.Sums(t.Context(), everything()))(t); made.Load() != 1 || len(sums) != 1 ||
			sums[0].Sums.Amount != money.USD {
			t.Errorf("%d were made, sums %+v", made.Load(), sums)
		}
	}},
	{"accounts at once keep ledgers of their own", func(t *testing.T, b *Backend) {
		var wg sync.WaitGroup
		for worker := range 4 {
			s, a := b.Reopen(t).Ledger, ledger.Account{Cloud: "aws", ID: fmt.Sprint(worker)}
			wg.Go(func() {
				rounds, observations := sights()
				for i, r := range rounds[:4] {
					r.Account = a
					for j := range observations[i] {
						observations[i][j].Ref.Account = a.ID
					}
					if _, err := ledger.Post(t.Context(), s, r, observations[i]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		all := must(b.Ledger.Sums(t.Context(), everything(ledger.ByAccount)))(t)
		want := must(model(t, 4).Sums(t.Context(), everything()))(t)
		if len(all) != 4 || len(want) != 1 {
			t.Fatalf("%d accounts, %d sums of the model", len(all), len(want))
		}
		for _, sum := range all {
			if sum.Sums != want[0].Sums || sum.Unknown != want[0].Unknown {
				t.Errorf("account %s came to %+v, want %+v", sum.Key, sum, want[0])
			}
		}
	}},
	{"a sum past the range is an error and adds nothing", func(t *testing.T, b *Backend) {
		huge, more := charge(noon, "i-1"), charge(noon.Add(time.Hour), "i-1")
		huge.Amount = math.MaxInt64
		if _, err := b.Ledger.Append(t.Context(), payer, 0, []ledger.Entry{huge, more}); !errors.Is(
			err, money.ErrOverflow) {
			t.Errorf("in one batch: got %v, want money.ErrOverflow", err)
		}
		appended(t, b.Ledger, huge)
		for name, hour := range map[string]time.Time{
			"the hour": noon, "the day": noon.Add(time.Hour), "the month": noon.AddDate(0, 0, 3),
		} {
			if _, err := b.Ledger.Append(t.Context(), payer, 1, []ledger.Entry{charge(hour, "i-1")}); !errors.Is(err,
				money.ErrOverflow) {
				t.Errorf("past the range of %s: got %v, want money.ErrOverflow", name, err)
			}
		}
		appended(t, b.Ledger, charge(noon.AddDate(0, 2, 0), "i-1"))
		if got, err := b.Ledger.Sums(t.Context(), everything(ledger.ByTeam)); !errors.Is(err, money.ErrOverflow) {
			t.Errorf("over months: got %+v, %v; want money.ErrOverflow", got, err)
		}
		entries := must(b.Ledger.Entries(t.Context(), huge.Ref, noon.AddDate(-1, 0, 0), noon.AddDate(1, 0, 0)))(t)
		if len(entries) != 2 || entries[0].Amount != math.MaxInt64 {
			t.Errorf("kept %+v", entries)
		}
	}},
	{"rounds in any order, some twice, come to the ledger of the model", func(t *testing.T, b *Backend) {
		rounds, observations := sights()
		for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(len(rounds)) {
			for range 1 + i%2 {
				must(ledger.Post(t.Context(), b.Ledger, rounds[i], observations[i]))(t)
			}
		}
		agree(t, b.Ledger, model(t, len(rounds)))
	}},
	{"sums by every dimension, granularity and filter are those of the model", ledgerSums},
	{"a round that is pending bounds no other", func(t *testing.T, b *Backend) {
		stores := []ledger.Store{ledgertest.NewStore(), b.Ledger}
		rounds, observations := sights()
		for _, s := range stores {
			for i, r := range rounds {
				no(t, s.Record(t.Context(), r, observations[i]))
			}
			for i, r := range must(s.Pending(t.Context(), payer))(t) {
				if i%3 == 0 {
					no(t, s.Settle(t.Context(), r))
				}
			}
		}
		for i, r := range rounds {
			want := must(stores[0].Touched(t.Context(), r))(t)
			if diff := cmp.Diff(want, must(stores[1].Touched(t.Context(), r))(t)); diff != "" || len(want) == 0 {
				t.Errorf("the %d touches of round %d (-want +got):\n%s", len(want), i, diff)
			}
		}
	}},
	{"days of resources are those of the model", func(t *testing.T, b *Backend) {
		want := ledgertest.NewStore()
		for _, batch := range varied(300) {
			appended(t, b.Ledger, batch...)
			appended(t, want, batch...)
		}
		from, to := noon.Truncate(24*time.Hour).AddDate(0, 0, 1), noon.Truncate(24*time.Hour).AddDate(0, 0, 20)
		days := must(want.ResourceDays(t.Context(), payer, from, to))(t)
		if diff := cmp.Diff(days, must(b.Ledger.ResourceDays(t.Context(), payer, from, to))(t)); diff != "" ||
			len(days) < 50 {
			t.Errorf("%d days (-want +got):\n%s", len(days), diff)
		}
	}},
}

func ledgerFields(t *testing.T, b *Backend) {
	r, o := filled[ledger.Round](), filled[ledger.Observation]()
	o.Ref.Cloud, o.Ref.Account, o.At = r.Account.Cloud, r.Account.ID, r.At
	no(t, b.Ledger.Record(t.Context(), r, []ledger.Observation{o}))
	other := b.Reopen(t).Ledger
	if diff := cmp.Diff([]ledger.PendingRound{{Round: r, Mark: 1}}, must(other.Pending(t.Context(), r.Account))(t),
		partsInOrder); diff != "" {
		t.Errorf("the round (-want +got):\n%s", diff)
	}
	charged, gap := filled[ledger.Entry](), filled[ledger.Entry]()
	for _, e := range []*ledger.Entry{&charged, &gap} {
		e.Ref, e.Hour = o.Ref, r.At.Truncate(time.Hour)
	}
	charged.Gap, gap.Amount = "", 0
	must(b.Ledger.Append(t.Context(), r.Account, 1, []ledger.Entry{charged, gap}))(t)
	hour := charged.Hour
	if diff := cmp.Diff([]ledger.Entry{
		charged, gap,
	}, must(other.Entries(t.Context(), o.Ref, hour, hour.Add(time.Hour)))(t)); diff != "" {
		t.Errorf("the entries (-want +got):\n%s", diff)
	}
	got, version, err := other.Histories(t.Context(), r.Account, []inventory.Ref{o.Ref, {ID: "unknown"}}, hour,
		hour.Add(time.Hour))
	want := []ledger.History{
		{Ref: o.Ref, Observations: []ledger.Observation{o}, Posted: []ledger.Entry{charged, gap}},
		{Ref: inventory.Ref{ID: "unknown"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || version != 2 || err != nil {
		t.Errorf("version %d, error %v, the histories (-want +got):\n%s", version, err, diff)
	}
	if diff := cmp.Diff([]ledger.Account{r.Account}, must(other.Accounts(t.Context()))(t)); diff != "" {
		t.Errorf("the accounts (-want +got):\n%s", diff)
	}
}

// varied returns batches of entries over seven weeks that differ in every dimension.
func varied(n int) [][]ledger.Entry {
	random := rand.New(rand.NewPCG(5, 6))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	batches := make([][]ledger.Entry, 3)
	for i := range n {
		e := ledger.Entry{
			Kind: ledger.Kind(pick("accrual", "accrual", "correction", "reconciliation")),
			Hour: noon.Add(time.Duration(random.IntN(49*24)) * time.Hour), Round: noon,
			Line: ledger.Line{
				Ref: thing(pick("us-east-1", "eu-west-1"),
					inventory.Kind(pick("instance", "volume")), pick("a", "B", "ä")),
				Attributes: ledger.Attributes{
					Name: pick("x", "y"), Type: pick("g5.xlarge", ""), Market: inventory.Market(pick("", "spot")),
					Purpose:  inventory.Purpose(pick("training", "")),
					Lifetime: inventory.Lifetime(pick("ephemeral", "")), Hold: pick("", "h1", "h2"),
					Owner: inventory.Owner{
						Team: pick("vision", "Vision", ""), Project: pick("p", ""), User: pick("ana", "bo"),
						Environment: pick("dev", "prod"), CostCenter: pick("7", ""),
					},
				},
				Meter: pick("hours", "iops"), Category: ledger.Category(pick("compute", "storage")),
				Service: pick("", "Amazon EC2"), ChargeCategory: ledger.Usage,
				Pricing: ledger.Pricing(pick("Standard", "Dynamic")), Duty: pick("busy", "idle", ""),
				Monthly: money.Amount(random.IntN(3)),
				Gap:     ledger.Gap(pick("", "", "", "unobserved", "no price")),
			},
			Sums: ledger.Sums{Seconds: random.Int64N(3600), Amount: money.Amount(random.Int64N(1e9)) - 1e8},
		}
		if e.Kind == ledger.Reconciled {
			e.Hour, e.Gap = e.Hour.Truncate(24*time.Hour), ""
		}
		if e.Gap != "" {
			e.Amount, e.AtMost, e.Unbounded = 0, money.Amount(random.Int64N(1e9)), random.Int64N(100)
		}
		batches[i%len(batches)] = append(batches[i%len(batches)], e)
	}
	return batches
}

// ledgerSums compares the answers of two ledgers with the same entries.
func ledgerSums(t *testing.T, b *Backend) {
	want := ledgertest.NewStore()
	for _, batch := range varied(500) {
		appended(t, b.Ledger, batch...)
		appended(t, want, batch...)
	}
	month := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	spans := []struct{ since, until time.Time }{
		{noon.AddDate(0, 0, -5), noon.AddDate(1, 0, 0)}, {noon.Add(5 * time.Hour), noon.Add(1000 * time.Hour)},
		{month, month.AddDate(0, 1, 0)},
		{month.Add(-3 * time.Hour), month.Add(2 * time.Hour)}, {month.Add(3 * time.Hour), month.Add(200 * time.Hour)},
		{noon, noon.Add(2 * time.Hour)},
		{month.AddDate(0, 0, 1), month.AddDate(0, 0, 9)}, {noon, noon}, {noon.Add(time.Hour), noon},
	}
	filters := []ledger.Filter{
		nil, {
			{By: ledger.ByTeam, Values: []string{"vision", ""}},
		}, {{By: ledger.ByResource, Values: []string{thing("us-east-1", "volume", "ä").String()}}},
		{{By: ledger.ByKind, Values: []string{"instance"}}, {By: ledger.ByUser, Values: []string{"bo"}}},
		{{By: ledger.ByTeam}},
	}
	bys := [][]ledger.Dimension{nil, {ledger.ByTeam, ledger.ByDuty}, {ledger.ByResource, ledger.ByTeam}}
	for _, d := range ledger.Dimensions {
		bys = append(bys, []ledger.Dimension{d})
	}
	n := 0
	for i, by := range bys {
		for j, span := range spans {
			g := []ledger.Granularity{ledger.Whole, ledger.Hourly, ledger.Daily, ledger.Monthly}[(i+j)%4]
			q := ledger.SumQuery{
				By: by, Since: span.since, Until: span.until, Granularity: g, Filter: filters[(i*2+j)%len(filters)],
				Accrued: (i+j)%3 == 0,
			}
			sums, got := must(want.Sums(t.Context(), q))(t), must(b.Ledger.Sums(t.Context(), q))(t)
			if diff := cmp.Diff(sums, got); diff != "" && len(sums)+len(got) > 0 {
				t.Fatalf("%+v (-want +got):\n%s", q, diff)
			}
			n += len(sums)
		}
	}
	if n < 1000 {
		t.Errorf("%d sums were compared", n)
	}
	if _, err := b.Ledger.Sums(t.Context(), everything("team; --")); err == nil {
		t.Error("a dimension that does not exist is taken")
	}
}
