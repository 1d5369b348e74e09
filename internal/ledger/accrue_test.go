package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// noon is the start of the tests.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// clock parses "13:30" or "13:30:05" on the day of the tests; "+1 09:00" is a day later.
func clock(s string) time.Time {
	day := noon.Truncate(24 * time.Hour)
	if rest, next := strings.CutPrefix(s, "+1 "); next {
		day, s = day.AddDate(0, 0, 1), rest
	}
	layout := "15:04"
	if len(s) > 5 {
		layout = "15:04:05"
	}
	t, err := time.Parse(layout, s)
	if err != nil {
		panic(err)
	}
	return day.Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*
			time.Second)
}

func clocks(s ...string) []time.Time {
	out := make([]time.Time, len(s))
	for i := range s {
		out[i] = clock(s[i])
	}
	return out
}

// dollarAnHour is the monthly rate of the tests' machines.
const dollarAnHour = 730 * money.USD

func compute(hourly money.Amount) Meter {
	return Meter{
		Name: "compute", Category: Compute, Monthly: 730 * hourly, Source: "list", AsOf: clock("00:00"),
		MinimumSeconds: 60,
	}
}

// seen returns an observation of the tests' machine; while running it costs a dollar an hour.
func seen(at string, state inventory.State, more ...func(*Observation)) Observation {
	o := Observation{
		At:    clock(at),
		Ref:   inventory.Ref{Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1"},
		State: state,
	}
	if state == inventory.StateRunning {
		o.Meters = []Meter{compute(money.USD)}
	}
	for _, f := range more {
		f(&o)
	}
	return o
}

func launched(s string) func(*Observation) { return func(o *Observation) { o.CreatedAt = clock(s) } }
func since(s string) func(*Observation)    { return func(o *Observation) { o.StateSince = clock(s) } }
func at(m ...Meter) func(*Observation)     { return func(o *Observation) { o.Meters = m } }
func did(s duty.State, from, to string) func(*Observation) {
	return func(o *Observation) { o.Duty = append(o.Duty, Span{clock(from), clock(to), s}) }
}
func kind(k inventory.Kind) func(*Observation) { return func(o *Observation) { o.Ref.Kind = k } }

func spot(hourly money.Amount) Meter {
	m := compute(hourly)
	m.Moves, m.AtMost = true, dollarAnHour
	return m
}

// capped returns a spot meter with a maximum of dollars an hour; 0 for unknown.
func capped(most money.Amount) Meter {
	m := spot(money.USD / 2)
	m.AtMost = most * dollarAnHour
	return m
}

func from(s string, m Meter) Meter {
	m.AsOf = clock(s)
	return m
}

// show formats entries: hour, meter, duty or gap, seconds, dollars or maximum.
func show(entries []Entry) []string {
	out := []string{}
	for _, e := range entries {
		s := fmt.Sprintf("%s %s %s", e.Hour.Format("15"), e.Meter, e.Duty)
		if e.Gap != "" {
			s += " (" + string(e.Gap) + ")"
		}
		s += fmt.Sprintf(" %ds", e.Seconds)
		switch {
		case e.Unbounded != 0:
			s += " ?"
		case e.Gap != "":
			s += " <=" + e.AtMost.String()
		default:
			s += " " + e.Amount.String()
		}
		out = append(out, s)
	}
	return out
}

func TestAccrue(t *testing.T) {
	run, stop := inventory.StateRunning, inventory.StateStopped
	unpriced := Meter{Name: "compute", Category: Compute, Unpriced: "no price"}
	disk := func(monthly money.Amount) Meter {
		return Meter{Name: "storage", Category: Storage, Monthly: monthly, AsOf: clock("00:00")}
	}
	volume, notebook, bare := kind(inventory.KindVolume), kind(inventory.KindNotebook), at()
	dark := unpriced
	dark.MinimumSeconds = 60
	dearer := compute(2 * money.USD)
	dearer.AsOf = clock("12:45")
	for _, tc := range []struct {
		name   string
		rounds []time.Time
		seen   []Observation
		want   []string
	}{
		{"one observation says nothing of before", nil, []Observation{seen("12:00", run, launched("08:00"))}, nil},
		{"nothing before the first round", clocks("12:00"), []Observation{seen("12:00", run, launched("08:00"))}, nil},
		{
			"the former state holds", nil, []Observation{seen("12:00", run), seen("12:30", run)},
			[]string{"12 compute unknown 1800s 0.50"},
		},
		{
			"an hour's end splits", nil, []Observation{seen("12:50", run), seen("13:10", run)},
			[]string{"12 compute unknown 600s 0.166666667", "13 compute unknown 600s 0.166666667"},
		},
		{"a long gap is not charged", nil, []Observation{seen("12:00", run), seen("15:00", run)},
			[]string{
				"12 compute unknown (unobserved) 3600s <=1.00", "13 compute unknown (unobserved) 3600s <=1.00",
				"14 compute unknown (unobserved) 3600s <=1.00",
			}},
		{
			"two hours are not a long gap", nil, []Observation{seen("12:00", run), seen("14:00", run)},
			[]string{"12 compute unknown 3600s 1.00", "13 compute unknown 3600s 1.00"},
		},
		{
			"a launch before makes a long gap known", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("15:00", run, launched("08:00")),
			},
			[]string{
				"12 compute unknown 3600s 1.00", "13 compute unknown 3600s 1.00", "14 compute unknown 3600s 1.00",
			}},
		{
			"a stop in a long gap splits it", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("18:00", stop, launched("08:00"), since("13:30")),
			},
			[]string{"12 compute unknown 3600s 1.00", "13 compute unknown 1800s 0.50"}},
		{
			"a launch in a long gap splits it", nil,
			[]Observation{seen("12:00", stop), seen("18:00", run, launched("17:15"), since("17:15"))},
			[]string{"17 compute unknown 2700s 0.75"},
		},
		{
			"launched again: when it stopped is not known", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("13:00", run, launched("12:45")),
			},
			[]string{"12 compute unknown 900s 0.25", "12 compute unknown (unobserved) 2700s <=0.75"}},
		{
			"stopped between, and seen to have run", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("15:00", stop, launched("13:00"), since("14:00")),
			},
			[]string{"12 compute unknown (unobserved) 3600s <=1.00", "13 compute unknown 3600s 1.00"}},
		{
			"ran between two looks", nil,
			[]Observation{
				seen("12:00", stop, launched("08:00")), seen("15:00", stop, launched("13:00"), since("14:00")),
			},
			[]string{"13 compute unknown (unobserved) 3600s ?"},
		},
		{"a stopped machine has no meter", nil, []Observation{seen("12:00", stop), seen("13:00", stop)}, nil},
		{
			"a launch that failed costs nothing", clocks("12:00", "12:30"),
			[]Observation{
				seen("12:30", inventory.StatePending, launched("12:29")),
				seen("13:00", inventory.StateFailed, launched("12:29")),
			},
			nil,
		},
		{
			"new since the last round", clocks("12:00", "13:00"), []Observation{seen("13:00", run, launched("12:30"))},
			[]string{"12 compute unknown 1800s 0.50"},
		},
		{
			"new, launched before the round that did not list it", clocks("12:00", "13:00"),
			[]Observation{seen("13:00", run, launched("11:00"))}, []string{"12 compute unknown 3600s 1.00"},
		},
		{
			"new, since an unknown time", clocks("12:00", "13:00"), []Observation{seen("13:00", run)},
			[]string{"12 compute unknown (unobserved) 3600s <=1.00"},
		},
		{
			"new and stopped: it ran, unseen", clocks("12:00", "13:00"),
			[]Observation{seen("13:00", stop, launched("12:15"), since("12:45"))},
			[]string{"12 compute unknown (unobserved) 1800s ?"},
		},
		{
			"new and on its way out: it ran, unseen", clocks("12:00", "13:00"),
			[]Observation{seen("13:00", inventory.StateDeleting, launched("12:15"))},
			[]string{"12 compute unknown (unobserved) 2700s ?"},
		},
		{
			"new, and its launch failed", clocks("12:00", "13:00"),
			[]Observation{seen("13:00", inventory.StateFailed, launched("12:15"), since("12:16"))}, nil,
		},
		{
			"launched again and on its way out", nil,
			[]Observation{seen("12:00", stop), seen("13:00", inventory.StateDeleting, launched("12:30"))},
			[]string{"12 compute unknown (unobserved) 1800s ?"},
		},
		{
			"a launch in the future is not known", nil,
			[]Observation{seen("12:00", run), seen("12:30", run, launched("13:30"))},
			[]string{"12 compute unknown 1800s 0.50"},
		},
		{
			"a launch while the round was read is not of before", clocks("12:00", "13:00"),
			[]Observation{seen("13:00", run, launched("13:02"), since("13:02"))}, nil,
		},
		{
			"a launch while the round was read counts from then", clocks("12:00", "13:00", "14:00"),
			[]Observation{
				seen("13:00", run, launched("13:02"), since("13:02")),
				seen("14:00", run, launched("13:02"), since("13:02")),
			},
			[]string{"13 compute unknown 3480s 0.966666667"}},
		{
			"a clock behind the provider's for two rounds", clocks("12:00"), []Observation{
				seen("12:10", run, launched("12:30")), seen("12:20", run, launched("12:30")),
				seen("13:00", run, launched("12:30")),
			},
			[]string{"12 compute unknown 1800s 0.50"}},
		{
			"launched again while the round was read: when it stopped is not known", nil,
			[]Observation{
				seen("12:00", run, launched("08:00")), seen("12:30", run, launched("12:33")),
				seen("13:00", run, launched("12:33")),
			},
			[]string{"12 compute unknown 1620s 0.45", "12 compute unknown (unobserved) 1800s <=0.50"}},
		{
			"started while the round was read", nil,
			[]Observation{seen("12:00", stop, launched("08:00")), seen("12:30", run, launched("12:33"))}, nil,
		},
		{
			"stopped while the round was read: it ran on, unseen", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("12:30", stop, launched("08:00"), since("12:33")),
				seen("13:00", stop, launched("08:00"), since("12:33")),
			},
			[]string{"12 compute unknown 1800s 0.50", "12 compute unknown (unobserved) 180s ?"}},
		{
			"a stop in the future is not known", nil, []Observation{
				seen("12:00", run), seen("12:30", stop, since("13:30")),
			},
			[]string{"12 compute unknown 1800s 0.50"},
		},
		{
			"gone: it ended at an unknown time", clocks("12:00", "12:30"), []Observation{seen("12:00", run)},
			[]string{"12 compute unknown (gone) 1800s <=0.50"},
		},
		{
			"gone and back", clocks("12:00", "12:30", "13:00"), []Observation{
				seen("12:00", run, launched("08:00")), seen("13:00", run, launched("12:45")),
			},
			[]string{"12 compute unknown 900s 0.25", "12 compute unknown (gone) 1800s <=0.50"}},
		{
			"missed by a listing that was wrong", clocks("12:00", "12:30", "13:00"),
			[]Observation{seen("12:00", run, launched("08:00")), seen("13:00", run, launched("08:00"))},
			[]string{"12 compute unknown 3600s 1.00"},
		},
		{
			"a run under a minute costs a minute", clocks("12:00"), []Observation{
				seen("12:00:30", run, launched("12:00:20")),
				seen("12:10", stop, launched("12:00:20"), since("12:00:40")),
			},
			[]string{"12 compute idle 40s 0.011111111", "12 compute unknown 20s 0.005555556"}},
		{
			"a run over a minute is billed by the second", clocks("12:00"), []Observation{
				seen("12:01", run, launched("12:00:20")), seen("12:10", stop, launched("12:00:20"), since("12:01:21")),
			},
			[]string{"12 compute unknown 61s 0.016944444"}},
		{
			"a short run without a price costs no second at nothing", clocks("12:00"),
			[]Observation{
				seen("12:00:30", run, launched("12:00:20"), at(dark)),
				seen("12:10", stop, launched("12:00:20"), since("12:00:40")),
			},
			[]string{"12 compute unknown (no price) 20s ?"}},
		{
			"what has no minimum is billed by the second", clocks("12:00"), []Observation{
				seen("12:00:30", run, launched("12:00:20"), at(compute(money.USD), disk(73*money.USD))),
				seen("12:10", stop, launched("12:00:20"), since("12:00:40")),
			},
			[]string{
				"12 compute idle 40s 0.011111111", "12 compute unknown 20s 0.005555556", "12 storage  20s 0.000555556",
			}},
		{
			"a run that ends with the hour costs its minute in that hour", clocks("12:59"),
			[]Observation{
				seen("12:59:55", run, launched("12:59:50")), seen("13:10", stop, launched("12:59:50"), since("13:00")),
			},
			[]string{"12 compute idle 50s 0.013888889", "12 compute unknown 10s 0.002777778"}},
		{
			"a new price holds from its date", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("13:00", run, launched("08:00"), at(dearer)),
			},
			[]string{"12 compute unknown 2700s 0.75", "12 compute unknown 900s 0.50"}},
		{
			"what grew at the same price did not on the price's date", nil, []Observation{
				seen("12:00", inventory.StateInUse, volume, launched("08:00"), at(from("12:30", disk(73*money.USD)))),
				seen("13:00", inventory.StateInUse, volume, launched("08:00"), at(from("12:30", disk(146*money.USD)))),
			},
			[]string{"12 storage  3600s 0.10"}},
		{
			"what grew in a long gap costs as before for a while", nil, []Observation{
				seen("12:00", inventory.StateInUse, volume, launched("08:00"), at(disk(73*money.USD))),
				seen("16:00", inventory.StateInUse, volume, launched("08:00"), at(disk(146*money.USD))),
			},
			[]string{
				"12 storage  3600s 0.10", "13 storage  3600s 0.10", "14 storage  (price not seen) 3600s <=0.20",
				"15 storage  (price not seen) 3600s <=0.20",
			}},
		{
			"a price that is newer is no growth", nil, []Observation{
				seen("12:00", inventory.StateInUse, volume, launched("08:00"), at(disk(73*money.USD))),
				seen("16:00", inventory.StateInUse, volume, launched("08:00"), at(from("11:00", disk(146*money.USD)))),
			},
			hourly(4, "storage  3600s 0.10")},
		{
			"a bucket fills all the time", nil, []Observation{
				seen("12:00", inventory.StateAvailable, kind(inventory.KindBucket), launched("08:00"),
					at(disk(73*money.USD))),
				seen("+1 12:00", inventory.StateAvailable, kind(inventory.KindBucket), launched("08:00"),
					at(disk(74*money.USD))),
			},
			hourly(24, "storage  3600s 0.10")},
		{
			"what shrank in a long gap cost no more than before", nil, []Observation{
				seen("12:00", inventory.StateInUse, volume, launched("08:00"), at(disk(146*money.USD))),
				seen("15:00", inventory.StateInUse, volume, launched("08:00"), at(disk(73*money.USD))),
			},
			[]string{"12 storage  3600s 0.20", "13 storage  3600s 0.20", "14 storage  (price not seen) 3600s <=0.20"}},
		{
			"a new price without a date inside holds from when it was seen", nil,
			[]Observation{
				seen("12:00", run), seen("12:30", run, at(compute(2*money.USD))),
				seen("13:00", run, at(compute(2*money.USD))),
			},
			[]string{"12 compute unknown 1800s 0.50", "12 compute unknown 1800s 1.00"}},
		{
			"spot at the price of the hour", nil, []Observation{
				seen("12:00", run, at(spot(money.USD/2))), seen("13:00", run, at(spot(money.USD/4))),
				seen("14:00", run, at(spot(money.USD))),
			},
			[]string{"12 compute unknown 3600s 0.50", "13 compute unknown 3600s 0.25"}},
		{
			"a spot price is not known for long", nil, []Observation{
				seen("12:00", run, launched("08:00"), at(spot(money.USD/2))),
				seen("15:00", run, launched("08:00"), at(spot(money.USD/2))),
			},
			[]string{
				"12 compute unknown 3600s 0.50", "13 compute unknown 3600s 0.50",
				"14 compute unknown (price not seen) 3600s <=1.00",
			}},
		{
			"a spot price is not known long before it was seen", clocks("08:00", "12:00"),
			[]Observation{seen("12:00", run, launched("09:00"), at(spot(money.USD/2)))},
			[]string{
				"09 compute unknown (price not seen) 3600s <=1.00", "10 compute unknown 3600s 0.50",
				"11 compute unknown 3600s 0.50",
			}},
		{
			"a spot price is not known of a later run", nil, []Observation{
				seen("12:00", run, launched("08:00"), at(spot(money.USD/2))),
				seen("18:00", stop, launched("15:00"), since("17:00")),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s <=1.00", "13 compute unknown (unobserved) 3600s <=1.00",
				"14 compute unknown (unobserved) 3600s <=1.00",
				"15 compute unknown (price not seen) 3600s <=1.00",
				"16 compute unknown (price not seen) 3600s <=1.00"}},
		{
			"a spot price that has a date holds from it", nil, []Observation{
				seen("12:00", run, launched("08:00"), at(spot(money.USD/2))),
				seen("16:00", run, launched("08:00"), at(from("15:00", spot(money.USD/4)))),
			},
			[]string{
				"12 compute unknown 3600s 0.50", "13 compute unknown 3600s 0.50",
				"14 compute unknown (price not seen) 3600s <=1.00", "15 compute unknown 3600s 0.25",
			}},
		{
			"a spot price of which the most is not known has no bound", nil, []Observation{
				seen("12:00", run, at(capped(0))), seen("15:00", run, at(capped(0))),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s ?", "13 compute unknown (unobserved) 3600s ?",
				"14 compute unknown (unobserved) 3600s ?",
			}},
		{
			"two gaps of an hour, of which the first has no bound", clocks("12:10", "12:30"),
			[]Observation{seen("12:00", run, at(capped(0))), seen("12:20", run, launched("12:20"), at(capped(1)))},
			[]string{"12 compute unknown (gone) 1200s ?"}},
		{
			"two gaps of an hour, of which the last has no bound", clocks("12:10", "12:30"),
			[]Observation{seen("12:00", run, at(capped(1))), seen("12:20", run, launched("12:20"), at(capped(0)))},
			[]string{"12 compute unknown (gone) 1200s ?"}},
		{
			"two gaps of an hour cost at most the higher rate", clocks("12:10", "12:30"),
			[]Observation{seen("12:00", run, at(capped(2))), seen("12:20", run, launched("12:20"), at(capped(1)))},
			[]string{"12 compute unknown (gone) 1200s <=0.666666667"}},
		{
			"no price is not zero", nil, []Observation{
				seen("12:00", run, at(unpriced)), seen("13:00", run, at(unpriced)),
			},
			[]string{"12 compute unknown (no price) 3600s ?"},
		},
		{
			"duty by its share", nil, []Observation{
				seen("12:00", run), seen("13:00", run, did(duty.Busy, "12:00", "12:15"),
					did(duty.Idle, "12:30", "13:00")),
			},
			[]string{"12 compute busy 900s 0.25", "12 compute idle 1800s 0.50", "12 compute unknown 900s 0.25"}},
		{
			"duty is not carried past its evidence", nil,
			[]Observation{seen("12:00", run, did(duty.Busy, "11:00", "12:00")), seen("13:00", run)},
			[]string{"12 compute unknown 3600s 1.00"},
		},
		{
			"evidence speaks of the time since the look before", nil, []Observation{
				seen("12:00", run), seen("12:30", run), seen("13:00", run, did(duty.Idle, "12:00", "13:00")),
			},
			[]string{"12 compute idle 1800s 0.50", "12 compute unknown 1800s 0.50"}},
		{
			"parts of an hour are rounded once", nil, []Observation{
				seen("12:00", run), seen("12:00:01", run, did(duty.Busy, "12:00", "12:00:01")),
				seen("12:00:03", run, did(duty.Idle, "12:00:01", "12:00:03")),
			},
			[]string{"12 compute busy 1s 0.000277778", "12 compute idle 2s 0.000555555"}},
		{
			"a disk costs by existing", nil, []Observation{
				seen("12:00", inventory.StateInUse, volume, launched("08:00"), at(disk(73*money.USD))),
				seen("+1 12:00", inventory.StateAvailable, volume, launched("08:00"), at(disk(73*money.USD))),
			},
			hourly(24, "storage  3600s 0.10")},
		{
			"a disk that was replaced", nil, []Observation{
				seen("12:00", inventory.StateInUse, volume, launched("08:00"), at(disk(73*money.USD))),
				seen("13:00", inventory.StateInUse, volume, launched("12:30"), at(disk(73*money.USD))),
			},
			[]string{"12 storage  1800s 0.05", "12 storage  (unobserved) 1800s <=0.05"}},
		{
			"free capacity of a reservation is wasted", nil, []Observation{
				seen("12:00", run, at(Meter{Name: "unused", Category: Compute, Monthly: dollarAnHour})),
				seen("13:00", run, at(Meter{Name: "unused", Category: Compute, Monthly: dollarAnHour})),
			},
			[]string{"12 unused unused 3600s 1.00"}},
		{"nothing was observed", clocks("12:00", "13:00"), nil, nil},
		{
			"a gap costs at most the higher rate", nil, []Observation{
				seen("12:00", run), seen("15:00", run, at(compute(2*money.USD))),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s <=2.00", "13 compute unknown (unobserved) 3600s <=2.00",
				"14 compute unknown (unobserved) 3600s <=2.00",
			}},
		{
			"a gap costs at most the higher rate, which came first", nil, []Observation{
				seen("12:00", run, at(compute(2*money.USD))), seen("15:00", run),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s <=2.00", "13 compute unknown (unobserved) 3600s <=2.00",
				"14 compute unknown (unobserved) 3600s <=2.00",
			}},
		{
			"a gap before something without a price has no bound", nil, []Observation{
				seen("12:00", run), seen("15:00", run, at(unpriced)),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s ?", "13 compute unknown (unobserved) 3600s ?",
				"14 compute unknown (unobserved) 3600s ?",
			}},
		{
			"a gap after something without a price has no bound", nil, []Observation{
				seen("12:00", run, at(unpriced)), seen("15:00", run),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s ?", "13 compute unknown (unobserved) 3600s ?",
				"14 compute unknown (unobserved) 3600s ?",
			}},
		{
			"stopped since before the last look", nil,
			[]Observation{
				seen("12:00", run, launched("08:00")), seen("13:00", stop, launched("08:00"), since("11:30")),
			}, nil,
		},
		{
			"replaced, running since an unknown time", nil, []Observation{
				seen("12:00", stop, notebook, launched("08:00")), seen("13:00", run, notebook, launched("12:30")),
			},
			[]string{"12 compute unknown 1800s 0.50", "12 compute unknown (unobserved) 1800s <=0.50"}},
		{
			"a new price holds from its date where the state holds", nil,
			[]Observation{seen("12:00", run), seen("13:00", run, at(dearer))},
			[]string{"12 compute unknown 2700s 0.75", "12 compute unknown 900s 0.50"},
		},
		{
			"the former state holds at its own price", nil,
			[]Observation{seen("12:00", run, notebook), seen("13:00", stop, notebook, at(dearer))},
			[]string{"12 compute unknown 3600s 1.00"},
		},
		{
			"stopped, and started between", nil,
			[]Observation{
				seen("12:00", stop, launched("08:00"), since("11:00")),
				seen("13:00", run, launched("08:00"), since("12:30")),
			},
			[]string{"12 compute unknown 1800s 0.50"},
		},
		{
			"a stop long after the last look", nil, []Observation{
				seen("12:00", run, launched("08:00")), seen("18:00", stop, launched("08:00"), since("15:30")),
			},
			[]string{
				"12 compute unknown 3600s 1.00", "13 compute unknown 3600s 1.00", "14 compute unknown 3600s 1.00",
				"15 compute unknown 1800s 0.50",
			}},
		{
			"started again long after the last look", nil, []Observation{
				seen("12:00", run, notebook), seen("16:00", run, notebook, since("15:00")),
			},
			[]string{
				"12 compute unknown (unobserved) 3600s <=1.00", "13 compute unknown (unobserved) 3600s <=1.00",
				"14 compute unknown (unobserved) 3600s <=1.00", "15 compute unknown 3600s 1.00",
			}},
		{
			"started again two hours after the last look", nil, []Observation{
				seen("12:00", run, notebook), seen("15:00", run, notebook, since("14:00")),
			},
			[]string{
				"12 compute unknown 3600s 1.00", "13 compute unknown 3600s 1.00", "14 compute unknown 3600s 1.00",
			}},
		{
			"new, and known since when it runs alone", clocks("12:00", "13:00"),
			[]Observation{seen("13:00", run, since("12:30"))},
			[]string{"12 compute unknown 1800s 0.50", "12 compute unknown (unobserved) 1800s <=0.50"}},
		{
			"new, made long ago, running since an unknown time", clocks("12:00", "15:00"),
			[]Observation{seen("15:00", run, notebook, launched("12:00"))},
			[]string{
				"12 compute unknown (unobserved) 3600s <=1.00", "13 compute unknown (unobserved) 3600s <=1.00",
				"14 compute unknown (unobserved) 3600s <=1.00",
			}},
		{
			"new, made two hours ago, running since an unknown time", clocks("12:00", "15:00"),
			[]Observation{seen("15:00", run, notebook, launched("13:00"))},
			[]string{"13 compute unknown 3600s 1.00", "14 compute unknown 3600s 1.00"}},
		{"new, launched long ago", clocks("08:00", "12:00"), []Observation{seen("12:00", run, launched("09:00"))},
			[]string{
				"09 compute unknown 3600s 1.00", "10 compute unknown 3600s 1.00", "11 compute unknown 3600s 1.00",
			}},
		{
			"what was measured of a gap says that it ran", nil, []Observation{
				seen("12:00", run), seen("15:00", run, did(duty.Busy, "12:00", "15:00")),
			},
			[]string{"12 compute busy 3600s 1.00", "13 compute busy 3600s 1.00", "14 compute busy 3600s 1.00"}},
		{
			"each meter by its name", nil, []Observation{
				seen("12:00", run, at(disk(73*money.USD), compute(money.USD))),
				seen("13:00", run, at(from("12:30", disk(146*money.USD)), dearer)),
			},
			[]string{
				"12 compute unknown 2700s 0.75", "12 compute unknown 900s 0.50", "12 storage  1800s 0.05",
				"12 storage  1800s 0.10",
			}},
		{
			"a price that comes to be known", nil, []Observation{
				seen("12:00", run, at(unpriced)), seen("13:00", run, at(dearer)),
			},
			[]string{"12 compute unknown 900s 0.50", "12 compute unknown (no price) 2700s ?"}},
		{
			"on its way out it costs until it is gone", clocks("13:00"),
			[]Observation{
				seen("12:00", run, launched("08:00")), seen("12:30", inventory.StateDeleting, launched("08:00"), bare),
			},
			[]string{"12 compute unknown 1800s 0.50"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Accrue(tc.rounds, tc.seen)
			if err != nil {
				t.Fatal(err)
			}
			if s := show(got); !slices.Equal(s, tc.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(s, "\n  "), strings.Join(tc.want, "\n  "))
			}
		})
	}
}

// hourly repeats the entry for n hours from noon on.
func hourly(n int, s string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = noon.Add(time.Duration(i)*time.Hour).Format("15") + " " + s
	}
	return out
}

// TestLinesHavePricing checks the pricing category and price of a meter, and the reason if it
// has none.
func TestLinesHavePricing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		meter Meter
		want  Line
	}{
		{"on demand", compute(money.USD), Line{ChargeCategory: Usage, Pricing: Standard, Monthly: dollarAnHour}},
		{"spot", spot(money.USD), Line{ChargeCategory: Usage, Pricing: Dynamic, Monthly: dollarAnHour}},
		{
			"a commitment", Meter{Name: "commitment", Category: Committed, Monthly: dollarAnHour},
			Line{ChargeCategory: Purchase, Pricing: Commitment, Monthly: dollarAnHour},
		},
		{
			"without a price", Meter{Name: "compute", Category: Compute, Monthly: 1, Unpriced: "no price"},
			Line{ChargeCategory: Usage, Pricing: Standard, Gap: Unpriced, Why: "no price"},
		},
	} {
		got, err := Accrue(nil, []Observation{
			seen("12:00", inventory.StateRunning, at(tc.meter)), seen("12:30", inventory.StateRunning, at(tc.meter)),
		})
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %+v, %v", tc.name, got, err)
		}
		l := got[0].Line
		if l.ChargeCategory != tc.want.ChargeCategory || l.Pricing != tc.want.Pricing ||
			l.Monthly != tc.want.Monthly ||
			l.Gap != tc.want.Gap || l.Why != tc.want.Why {
			t.Errorf("%s: %+v", tc.name, l)
		}
	}
}
