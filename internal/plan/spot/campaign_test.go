package spot

import (
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/data"
)

// recorded reads zones of skypilot-org/spot-traces (Can't Be Late, NSDI 2024).
func recorded(t testing.TB, zones string, gap time.Duration) Trace {
	t.Helper()
	f, err := os.Open(data.Path(t, "skypilot-spot/runs.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := Read(z, "runs.csv", Map{
		Columns: map[string]string{"zone": "trace", "time": "t_s", "length": "len_s", "up": "nodes_up"}, Gap: gap,
		Zones: zones,
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const campaign = "availability/aws-02-15-2023/*"

func campaignParams(factor string) Params {
	deadline, err := ParseDeadline(factor, 48*time.Hour)
	if err != nil {
		panic(err)
	}
	return Params{Work: 48 * time.Hour, Deadline: deadline, Restart: 12 * time.Minute, Every: 12 * time.Hour,
		SpotPrice: 918 * money.USD / 1000, OnDemandPrice: 306 * money.Cent}
}

// TestCampaignSavings compares the replay with known figures: of the baselines and the bound to a
// tenth of a point, and of curfew what it is to reach.
func TestCampaignSavings(t *testing.T) {
	tr := recorded(t, campaign, 195*time.Second)
	for _, tc := range []struct {
		deadline               string
		greedy, uniform, bound float64
		curfew                 float64
	}{
		{"1.15x", 31.8, 39.1, 48.8, 0.406},
		{"1.5x", 43.6, 42.8, 54.1, 0.475},
	} {
		if tc.deadline == "1.5x" && os.Getenv("CURFEW_SLOW") == "" {
			continue // make test-slow SUITE=plans; every day TestCampaignAcrossZones has it
		}
		t.Run(tc.deadline, func(t *testing.T) {
			r, err := Replay(tr, campaignParams(tc.deadline))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Results {
				t.Logf("%s %.2f %% %d misses %d starts %d cases $%s", x.Name, 100*x.Saving,
					x.Misses, x.Starts, x.Cases,
					x.MeanCostUSD)
				if x.Misses != 0 {
					t.Errorf("%s misses %d deadlines", x.Name, x.Misses)
				}
			}
			for _, z := range r.Zones {
				t.Logf("%s %.4f", z.Name, z.Results[2].Saving)
			}
			for name, want := range map[string]float64{
				Greedy: tc.greedy, UniformProgress: tc.uniform, Bound: tc.bound,
			} {
				if got := 100 * r.result(name).Saving; math.Abs(got-want) > 0.1 {
					t.Errorf("%s saves %.2f %%, want %.1f %%", name, got, want)
				}
			}
			if got := r.result(Curfew).Saving; got < tc.curfew {
				t.Errorf("curfew saves %.4f, want %.4f", got, tc.curfew)
			}
		})
	}
}

// TestCheckpointCampaign compares what the rules keep of the same runs with known figures.
func TestCheckpointCampaign(t *testing.T) {
	r, err := Checkpoint(recorded(t, campaign, 195*time.Second), CheckpointParams{
		Write: 2 * time.Minute, Restart: 3 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Results {
		t.Logf("%s %.1f s %.2f %% %v", x.Name, x.Interval, 100*x.Kept, x.ByAge)
	}
	for i, want := range []string{"85.9", "85.8", "86.9"} {
		if got := fmt.Sprintf("%.1f", 100*r.Results[i].Kept); got != want {
			t.Errorf("%s keeps %s%%, want %s%%", r.Results[i].Name, got, want)
		}
	}
	if got := r.Results[3].Kept; got < 0.882 {
		t.Errorf("curfew keeps %.4f", got)
	}
}

// TestCampaignAcrossZones checks that a case that may move saves more than it does in the best
// zone, and misses no deadline.
func TestCampaignAcrossZones(t *testing.T) {
	tr := recorded(t, campaign, 195*time.Second)
	for _, deadline := range []string{"1.15x", "1.5x"} {
		t.Run(deadline, func(t *testing.T) {
			p := campaignParams(deadline)
			p.AcrossZones = true
			r, err := Replay(tr, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Results {
				t.Logf("%s %.2f %% %d misses %d starts %d cases $%s", x.Name, 100*x.Saving,
					x.Misses, x.Starts, x.Cases,
					x.MeanCostUSD)
			}
			if x := r.result(Curfew); x.Misses > 0 || x.Saving < 0.688 || x.Saving < r.result(Greedy).Saving {
				t.Errorf("curfew saves %.4f with %d misses", x.Saving, x.Misses)
			}
		})
	}
}
