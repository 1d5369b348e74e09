package spot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan"
)

const gap = 10 * time.Minute

func TestRead(t *testing.T) {
	const e, u = false, true
	dollar := money.USD
	for _, tc := range []struct {
		name, text string
		m          Map
		want       []Zone
	}{
		{"runs", "trace,t_s,len_s,nodes_up\na,0,1200,1\na,1200,600,0\nb,0,600,2\n",
			Map{Columns: map[string]string{"zone": "trace", "time": "t_s", "length": "len_s", "up": "nodes_up"}},
			[]Zone{{Name: "a", Up: []bool{u, u, e}}, {Name: "b", Up: []bool{u}}}},
		{
			"single samples, nearly in their place", "time,up\n100,1\n690,0\n1320,1\n", Map{},
			[]Zone{{Up: []bool{u, e, u}}},
		},
		{"times of day, one zone later", "zone,time,up\na,2026-03-01T00:00:00Z,1\nb,2026-03-01T00:20:00Z,0\n", Map{},
			[]Zone{{Name: "a", Up: []bool{u}}, {Name: "b", First: 2, Up: []bool{e}}}},
		{
			"prices", "time,up,price,other\n0,1,$1,x\n600,0,,x\n", Map{},
			[]Zone{{Up: []bool{u, e}, Prices: []money.Amount{dollar, 0}}},
		},
		{
			"chosen zones", "zone,time,up\na/x,0,1\na/y,0,1\nb/x,0,0\n", Map{Zones: "a/*"},
			[]Zone{{Name: "a/x", Up: []bool{u}}, {Name: "a/y", Up: []bool{u}}},
		},
		{"all of four nodes", "time,up\n0,3\n600,4\n", Map{Nodes: 4}, []Zone{{Up: []bool{e, u}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.m.Gap = gap
			got, err := Read(strings.NewReader(tc.text), "t.csv", tc.m)
			if err != nil || fmt.Sprint(got.Zones) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, %v, want %v", got.Zones, err, tc.want)
			}
		})
	}
}

func TestReadErrorsHavePositions(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "t.csv: empty file: expected a header with time,up"},
		{"no sample", "time,up\n", "t.csv: no sample"},
		{"no column", "time,nodes\n0,1\n", `t.csv:1: column "up" is missing`},
		{
			"no time", "time,up\nnoon,1\n",
			`t.csv:2:1: time "noon": expected whole seconds or RFC 3339, such as 2026-03-01T14:00:00Z`,
		},
		{
			"negative time", "time,up\n-600,1\n",
			`t.csv:2:1: time "-600": expected whole seconds or RFC 3339, such as 2026-03-01T14:00:00Z`,
		},
		{
			"out of order", "time,up\n600,1\n0,1\n",
			"t.csv:3:1: time is 0, but earlier rows of this zone reach 1200 s: sort the rows, each sample once",
		},
		{
			"twice", "time,up\n0,1\n0,0\n",
			"t.csv:3:1: time is 0, but earlier rows of this zone reach 600 s: sort the rows, each sample once",
		},
		{
			"a hole", "time,up\n0,1\n1200,1\n",
			"t.csv:3:1: time is 1200, but earlier rows of this zone end at 600 s: the availability in between is missing",
		},
		{
			"length", "time,length,up\n0,700,1\n",
			"t.csv:2:3: length is 700 s: expected a multiple of the sampling step 10m0s",
		},
		{"no length", "time,length,up\n0,0,1\n", "t.csv:2:3: length is 0: expected 600 to 68719476736"},
		{
			"endless", "time,length,up\n0,68719476600,1\n",
			"t.csv:2:3: more than 16,777,216 samples: too many to replay",
		},
		{"up", "time,up\n0,yes\n", `t.csv:2:3: up "yes" is not a whole number`},
		{"unknown up", "time,up\n0,\n", `t.csv:2:3: up "" is not a whole number`},
		{
			"price of zero", "time,up,price\n0,1,0\n",
			"t.csv:2:5: price is 0: expected over 0 and at most $100,000 an hour",
		},
		{"negative price", "time,up,price\n0,1,-1\n", "t.csv:2:5: price is negative"},
		{"unknown price", "time,up,price\n0,1,1\n600,1,\n", "t.csv:3:7: price is empty"},
		{
			"unknown price before", "time,up,price\n0,1,\n600,1,1\n",
			"t.csv:3:7: price is 1 here, but empty in line 2: either all rows with spot available have a price or none",
		},
		{
			"unknown zone", "zone,time,up\na,0,1\n,0,1\n",
			`t.csv:3:1: zone is "" here, but "a" in other rows: either all rows have a zone or none`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(tc.text), "t.csv", Map{Gap: gap})
			var file *plan.FileError
			if !errors.As(err, &file) || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		name string
		m    Map
		want string
	}{
		{"no gap", Map{}, "read t.csv: sampling step 0s: expected whole seconds, at least 1s"},
		{"pattern", Map{Gap: gap, Zones: "["}, `read t.csv: the pattern of zones "[": syntax error in pattern`},
		{"none chosen", Map{Gap: gap, Zones: "c*"}, `t.csv: none of its 1 rows has a zone that matches "c*"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(strings.NewReader("time,up,zone\n0,1,a\n"), "t.csv", tc.m)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// FuzzRead: what passes is a trace, and written down sample by sample is read as the same.
func FuzzRead(f *testing.F) {
	f.Add("time,up\n0,1\n600,0\n")
	f.Add("zone,time,length,up,price\na,0,1200,1,0.5\na,1200,600,0,\nb,2026-03-01T00:00:00Z,600,3,2\n")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Count(s, "0000") > 2 || len(s) > 1000 {
			return // many samples, and nothing new
		}
		tr, err := Read(strings.NewReader(s), "t.csv", Map{Gap: gap})
		var file *plan.FileError
		if err != nil {
			if !errors.As(err, &file) {
				t.Fatalf("%v is not a *FileError", err)
			}
			return
		}
		if err := tr.check(); err != nil {
			t.Fatalf("%q passes, and is no trace: %v", s, err)
		}
		var b strings.Builder
		b.WriteString("time,up,price\n")
		z := tr.Zones[0]
		if len(z.Up) > 10_000 {
			return
		}
		for i, up := range z.Up {
			price := ""
			if z.Prices != nil {
				price = z.Prices[i].String()
			}
			fmt.Fprintf(&b, "%d,%d,%s\n", 600*i, index(up), price)
		}
		again, err := Read(strings.NewReader(b.String()), "t.csv", Map{Gap: gap})
		if err != nil || !slices.Equal(again.Zones[0].Up, z.Up) {
			t.Fatalf("%q is %v, and read again %v, %v", s, z.Up, again, err)
		}
	})
}

func TestParseDeadline(t *testing.T) {
	for _, tc := range []struct {
		text string
		want time.Duration
		err  string
	}{
		{"1.15x", 198_720 * time.Second, ""},
		{"1x", 48 * time.Hour, ""},
		{"55h12m", 198_720 * time.Second, ""},
		{"0.9x", 0, `deadline "0.9x": expected a multiple of the work from 1x to 1000x, such as 1.15x`},
		{"NaNx", 0, `deadline "NaNx": expected a multiple of the work from 1x to 1000x, such as 1.15x`},
		{"soon", 0, `deadline "soon": expected a multiple of the work, such as 1.15x, or a duration, such as 55h`},
		{"-1h", 0, `deadline "-1h": expected a multiple of the work, such as 1.15x, or a duration, such as 55h`},
	} {
		t.Run(tc.text, func(t *testing.T) {
			got, err := ParseDeadline(tc.text, 48*time.Hour)
			if got != tc.want || err == nil && tc.err != "" || err != nil && err.Error() != tc.err {
				t.Errorf("got %s, %v, want %s, %s", got, err, tc.want, tc.err)
			}
		})
	}
}
