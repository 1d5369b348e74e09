package costs

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cost   money.Amount
		shares []Share
		want   string // workload=amount(used/idle/unmeasured) … rest=…
		err    string
	}{
		{
			"GPUs of a machine", 8 * money.USD,
			[]Share{{Workload: "a", Part: 3, Of: 8, Used: 1, UsedOf: 2}, {Workload: "b", Part: 1, Of: 8}},
			"a=3.00(1.50/1.50/0.00) b=1.00(0.00/0.00/1.00) rest=4.00", "",
		},
		{
			"MIG slices", 7 * money.USD,
			[]Share{
				{Workload: "a", Part: 3, Of: 7, Used: 0, UsedOf: 1},
				{Workload: "b", Part: 2, Of: 7, Used: 1, UsedOf: 1},
			},
			"a=3.00(0.00/3.00/0.00) b=2.00(2.00/0.00/0.00) rest=2.00", "",
		},
		{
			"fractions", money.USD, []Share{{Workload: "a", Part: 1, Of: 3}, {Workload: "b", Part: 1, Of: 2}},
			"a=0.333333333(0.00/0.00/0.333333333) b=0.50(0.00/0.00/0.50) rest=0.166666667", "",
		},
		{
			"time slices that overlap", money.USD, []Share{
				{Workload: "a", Part: 1, Of: 1}, {Workload: "b", Part: 1, Of: 1}, {Workload: "c", Part: 1, Of: 1},
				{Workload: "d", Part: 1, Of: 1},
			},
			"a=0.25(0.00/0.00/0.25) b=0.25(0.00/0.00/0.25) c=0.25(0.00/0.00/0.25) d=0.25(0.00/0.00/0.25) rest=0.00",
			""},
		{"nothing allocated", money.USD, nil, "rest=1.00", ""},
		{
			"a machine that costs nothing", 0, []Share{{Workload: "a", Part: 1, Of: 2}},
			"a=0.00(0.00/0.00/0.00) rest=0.00",
			"",
		},
		{"a negative cost", -1, nil, "", "a machine's cost is not negative"},
		{"more than the whole", 1, []Share{{Workload: "a", Part: 2, Of: 1}}, "", "a has 2 of 1: a share is 0 to 1"},
		{
			"used more than allocated", 1, []Share{{Workload: "a", Part: 1, Of: 1, Used: 2, UsedOf: 1}}, "",
			"a used 2 of 1",
		},
		{"less than nothing of it", 1, []Share{{Workload: "a", Part: -1, Of: 1}}, "", "a has -1 of 1"},
		{
			"used less than nothing", 1, []Share{{Workload: "a", Part: 1, Of: 1, Used: -1, UsedOf: 1}}, "",
			"a used -1 of 1",
		},
		{
			"used of less than nothing", 1, []Share{{Workload: "a", Part: 1, Of: 1, Used: -2, UsedOf: -1}}, "",
			"a used -2 of -1",
		},
		{"of less than nothing", 1, []Share{{Workload: "a", Part: -1, Of: -1}}, "", "a has -1 of -1"},
		{"used, of an unknown whole", 1, []Share{{Workload: "a", Part: 1, Of: 1, Used: 1}}, "", "a used 1 of 0"},
		{
			"the whole, used whole", money.USD, []Share{{Workload: "a", Part: 2, Of: 2, Used: 3, UsedOf: 3}},
			"a=1.00(1.00/0.00/0.00) rest=0.00", "",
		},
		{
			"just the whole between two", money.USD,
			[]Share{{Workload: "a", Part: 1, Of: 2}, {Workload: "b", Part: 2, Of: 4}},
			"a=0.50(0.00/0.00/0.50) b=0.50(0.00/0.00/0.50) rest=0.00", "",
		},
		{
			"nothing of it", money.USD, []Share{{Workload: "a", Part: 0, Of: 3}, {Workload: "b", Part: 1, Of: 4}},
			"a=0.00(0.00/0.00/0.00) b=0.25(0.00/0.00/0.25) rest=0.75", "",
		},
		{
			"the largest denominator", 1 << 20, []Share{{Workload: "a", Part: 1<<63 - 1, Of: 1<<63 - 1}},
			"a=0.001048576(0.00/0.00/0.001048576) rest=0.00", "",
		},
		{
			"a denominator that just fits", 0, []Share{{Workload: "a", Part: 1, Of: 1<<63 - 1}},
			"a=0.00(0.00/0.00/0.00) rest=0.00", "",
		},
		{
			"a sum that does not fit", 1,
			[]Share{
				{Workload: "a", Part: 1<<62 - 1, Of: 1 << 62}, {Workload: "b", Part: 1<<62 - 1, Of: 1 << 62},
				{Workload: "c", Part: 1<<62 - 1, Of: 1 << 62},
			},
			"", "common denominator",
		},
		{
			"a denominator over 2^64", money.USD,
			[]Share{{Workload: "a", Part: 1, Of: 1 << 62}, {Workload: "b", Part: 1, Of: 5}}, "", "common denominator",
		},
		{
			"a denominator of 2^63", 1, []Share{
				{Workload: "a", Part: 1, Of: 1 << 62}, {Workload: "b", Part: 1, Of: 3},
			}, "",
			"common denominator",
		},
		{"of nothing", 1, []Share{{Workload: "a"}}, "", "a has 0 of 0"},
		{
			"denominators that do not fit", 1,
			[]Share{{Workload: "a", Part: 1, Of: 1<<62 - 57}, {Workload: "b", Part: 1, Of: 1<<61 - 1}}, "",
			"common denominator",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := Split(tc.cost, tc.shares)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range a.Workloads {
				got = append(got, fmt.Sprintf("%s=%s(%s/%s/%s)", w.Workload, w.Amount, w.Used, w.Idle, w.CannotJudge))
			}
			if s := strings.Join(append(got, "rest="+a.Unallocated.String()), " "); s != tc.want {
				t.Errorf("got  %s\nwant %s", s, tc.want)
			}
			if over := strings.Contains(tc.name, "overlap"); over != (a.Over != "") {
				t.Errorf("over-allocation noted: %q", a.Over)
			}
		})
	}
}

// TestSplitSumsToCost checks that workloads, idle and unallocated cost sum to the machine's
// cost, and that nothing is negative.
func TestSplitSumsToCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := money.Amount(rapid.Int64Range(0, 1e18).Draw(t, "cost"))
		shares := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Share {
			of, usedOf := rapid.Int64Range(1, 100).Draw(t, "of"), rapid.Int64Range(0, 1000).Draw(t, "used of")
			return Share{
				Workload: "w", Part: rapid.Int64Range(0, of).Draw(t, "part"), Of: of,
				Used: rapid.Int64Range(0, usedOf).Draw(t, "used"), UsedOf: usedOf,
			}
		}), 0, 8).Draw(t, "shares")
		a, err := Split(cost, shares)
		if err != nil {
			t.Fatal(err)
		}
		sum := a.Unallocated
		for _, w := range a.Workloads {
			if w.Used < 0 || w.Idle < 0 || w.CannotJudge < 0 || w.Used+w.Idle+w.CannotJudge != w.Amount {
				t.Fatalf("%+v", w)
			}
			sum += w.Amount
		}
		if sum != cost || a.Unallocated < 0 {
			t.Fatalf("parts of %d add up to %d, %d of it unallocated", cost, sum, a.Unallocated)
		}
	})
}
