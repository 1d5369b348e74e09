package costs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
)

// TestCostsNoteUnrecordedTime checks that unrecorded time and regions are noted, not shown as free.
func TestCostsNoteUnrecordedTime(t *testing.T) {
	machines, disks := ledger.Part{
		Region: "us-east-1", Kind: inventory.KindInstance,
	}, ledger.Part{Region: "us-east-1", Kind: inventory.KindVolume}
	west := ledger.Part{Region: "us-west-2", Kind: inventory.KindInstance}
	type look struct {
		hour  int
		parts []ledger.Part
	}
	all := []ledger.Part{machines, disks, west}
	for _, tc := range []struct {
		name   string
		looks  []look
		filter string
		want   string // notes on hours 10 to 20, without their ends
		known  bool
	}{
		{"no round", nil, "", "nothing was recorded in this time", false},
		{"rounds throughout", []look{{9, all}, {15, all}, {19, all}}, "", "", true},
		{"one round", []look{{12, all}}, "", "aws/1 was read once, on 2026-03-01 12:00", false},
		{"a first round within", []look{{12, all}, {20, all}}, "", "aws/1 is recorded since 2026-03-01 12:00", true},
		{
			"no round any more", []look{{9, all}, {15, all}}, "", "the newest pass over aws/1 was on 2026-03-01 15:00",
			true,
		},
		{
			"all of it before", []look{{1, all}, {9, all}}, "", "the newest pass over aws/1 was on 2026-03-01 09:00",
			false,
		},
		{"all of it after", []look{{21, all}, {22, all}}, "", "aws/1 is recorded since 2026-03-01 21:00", false},
		{
			"a region that is not read any more", []look{{9, all}, {20, all[:2]}}, "",
			"the newest pass over us-west-2 of aws/1 was on 2026-03-01 09:00", true,
		},
		{
			"a region that was not read at first", []look{{9, all[:2]}, {12, all}, {20, all}}, "",
			"us-west-2 of aws/1 is recorded since 2026-03-01 12:00", true,
		},
		{
			"kinds that are not read any more", []look{{9, all}, {20, []ledger.Part{machines, west}}}, "",
			"volume of aws/1: listed on 2026-03-01 09:00", true,
		},
		{
			"what is asked for is read", []look{{9, all}, {20, []ledger.Part{machines, west}}}, "kind=instance", "",
			true,
		},
		{
			"another account is asked for", []look{{9, all}, {20, all}}, "account=aws/2",
			"nothing was recorded in this time",
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := ledgertest.NewStore()
			for _, l := range tc.looks {
				if _, err := ledger.Post(ctx, store, ledger.Round{
					Account: account, At: start.Add(time.Duration(l.hour) * time.Hour), Complete: l.parts,
				}, nil); err != nil {
					t.Fatal(err)
				}
			}
			q := costs.Query{Since: start.Add(10 * time.Hour), Until: start.Add(20 * time.Hour)}
			if by, value, ok := strings.Cut(tc.filter, "="); ok {
				q.Filter = ledger.Filter{{By: ledger.Dimension(by), Values: []string{value}}}
			}
			c, err := costs.Spent(ctx, store, q)
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(c.CoverageNotes, "\n")
			if !strings.HasPrefix(notes, tc.want) || (tc.want == "") != (notes == "") || len(c.CoverageNotes) > 1 ||
				c.Recorded != tc.known {
				t.Errorf("recorded %t, %q; want %t, %q", c.Recorded, notes, tc.known, tc.want)
			}
		})
	}
}
