package spot

import (
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/data"
)

// TestUnmeasuredRateMatchesTraces compares the built-in rate and its range with the traces that it
// names: single machines on AWS, losses by hours that they were up.
func TestUnmeasuredRateMatchesTraces(t *testing.T) {
	f, err := os.Open(data.Path(t, "skypilot-spot/traces.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	low, high, losses, hours := math.Inf(1), 0.0, 0.0, 0.0
	for _, r := range rows[1:] {
		figure := func(name string) float64 {
			v, err := strconv.ParseFloat(r[column[name]], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if !strings.HasPrefix(r[column["campaign"]], "aws-") || r[column["kind"]] != "availability" ||
			figure("nodes_wanted") != 1 {
			continue
		}
		up := figure("share_any_up") * figure("span_s") / 3600
		losses, hours = losses+figure("drops"), hours+up
		if !strings.HasSuffix(r[column["machine"]], "_1") {
			continue // eight GPUs are another machine
		}
		low, high = min(low, figure("drops")/up), max(high, figure("drops")/up)
	}
	got := Unmeasured()
	for _, tc := range []struct {
		name      string
		got, want float64
	}{{"rate", got.PerHour, losses / hours}, {"low", got.Low, low}, {"high", got.High, high}} {
		if math.Abs(tc.got-tc.want) > 0.03*tc.want {
			t.Errorf("%s: %v, the traces say %v", tc.name, tc.got, tc.want)
		}
	}
}

func TestLearnedInterruptions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  Interruptions
		taken int
		hours float64
		want  string
	}{
		{"nothing seen", Unmeasured(), 0, 0, "0.33/h (0.095/h to 1.39/h)"},
		{"a hundred quiet hours", Unmeasured(), 0, 100, "0.165/h (0.0475/h to 0.695/h)"},
		{"many hours", Unmeasured(), 100, 9900, "0.0133/h (0.0109/h to 0.0239/h)"},
		{"configured", Configured(0.02), 100, 9900, "0.02/h"},
	} {
		if got := tc.from.Learn(tc.taken, tc.hours).String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestOverheadMatchesSimulation plays parts of work out and compares the mean.
func TestOverheadMatchesSimulation(t *testing.T) {
	chance := rand.New(rand.NewPCG(3, 4))
	for _, tc := range []struct {
		rate           float64
		every, restart time.Duration
	}{{0.33, 10 * time.Minute, 10 * time.Minute}, {1.39, time.Hour, 10 * time.Minute}, {0.1, 2 * time.Hour, 0}} {
		const parts = 200_000
		took := 0.0
		for done := 0; done < parts; {
			if lasts := chance.ExpFloat64() / tc.rate; lasts < tc.every.Hours() {
				took += lasts + tc.restart.Hours()
				continue
			}
			took += tc.every.Hours()
			done++
		}
		want, got := took/(parts*tc.every.Hours())-1, Overhead(tc.rate, tc.every, tc.restart)
		if math.Abs(got-want) > 0.03*want+0.001 {
			t.Errorf("%+v: %v, played %v", tc, got, want)
		}
	}
	if Overhead(0, time.Hour, time.Hour) != 0 {
		t.Error("without interruptions there is an overhead")
	}
}
