package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// shipped is where the ready policies are.
const shipped = "../../examples/policies"

// TestDemoDay: with the shipped policies, within a simulated day, next to nothing remains of the
// cost of idle machines that may end, and no working machine was acted on. The simulation says
// which machines worked, not the document.
func TestDemoDay(t *testing.T) {
	for _, tc := range []struct {
		seed uint64
		on   time.Weekday
	}{{3, time.Sunday}, {9_000_000_001, time.Thursday}} {
		if tc.seed != 3 && os.Getenv("CURFEW_SLOW") == "" {
			continue // make test-slow runs both
		}
		t.Run(strconv.FormatUint(tc.seed, 10), func(t *testing.T) {
			t.Parallel()
			policies, err := filepath.Abs(shipped)
			if err != nil {
				t.Fatal(err)
			}
			d := newDesktop(t)
			d.write("curfew.yaml", "")
			for d.now = time.Now(); d.now.Weekday() != tc.on; {
				d.now = d.now.AddDate(0, 0, -1)
			}
			code, out, errs := d.run("enforce", "--demo", "--seed", strconv.FormatUint(tc.seed, 10),
				"--policy", policies, "-o",
				"json")
			if code != ExitDone {
				t.Fatalf("exit %d: %s", code, errs)
			}
			var doc struct {
				Schema      string
				Seed        uint64
				From, Until time.Time
				ActedOnWork int `json:"acted_on_work"`
				Ephemeral   struct {
					Before map[string]string `json:"before_usd"`
					After  map[string]string `json:"after_usd"`
				}
				Machines []struct {
					Resource, Name, Lifetime string
					TrueWork                 struct {
						Before, After struct {
							Worked float64 `json:"worked_hours"`
							Rested float64 `json:"rested_hours"`
						}
					} `json:"true_work"`
					Before map[string]string `json:"before_usd"`
					After  map[string]string `json:"after_usd"`
					Done   []struct {
						At     time.Time
						Verb   string
						Result string
						Worked bool
					}
				}
			}
			if err := json.Unmarshal([]byte(out), &doc); err != nil {
				t.Fatal(err)
			}
			if doc.Schema != "curfew.demo/v1" || doc.Seed != tc.seed || doc.Until.Sub(doc.From) != 24*time.Hour {
				t.Errorf("%s, seed %d, %s to %s", doc.Schema, doc.Seed, doc.From, doc.Until)
			}
			was, is := usd(t, doc.Ephemeral.Before["idle"]), usd(t, doc.Ephemeral.After["idle"])
			if was < 100 || is >= 0.05*was {
				t.Errorf("idle machines that may end cost %.2f the day before and %.2f in the day, want under 5%%",
					was, is)
			}
			world := sim.New(sim.Options{Seed: tc.seed, Now: doc.From})
			seen, err := world.List(t.Context(), round.Query{Now: doc.Until})
			if err != nil {
				t.Fatal(err)
			}
			ended := 0
			for _, m := range doc.Machines {
				i := slices.IndexFunc(seen.Resources, func(r *inventory.Resource) bool {
					return r.Ref().String() == m.Resource
				})
				if i < 0 {
					t.Errorf("%s is not in the account", m.Resource)
					continue
				}
				truth := world.Work(doc.From, doc.Until)[seen.Resources[i].Ref()]
				if m.TrueWork.After.Worked != truth.Worked.Hours() || m.TrueWork.After.Rested != truth.Rested.Hours() {
					t.Errorf("%s: true work %+v, want %+v", m.Name, m.TrueWork.After, truth)
				}
				for _, done := range m.Done {
					if state, _ := world.At(seen.Resources[i].Ref(), done.At); state.Works || done.Worked {
						t.Errorf("%s was to %s at %s, when it worked", m.Name, done.Verb, done.At)
					}
				}
				if len(m.Done) > 0 {
					ended++
					if m.Lifetime != "ephemeral" {
						t.Errorf("%s is %q and was acted on", m.Name, m.Lifetime)
					}
				} else if m.Lifetime == "ephemeral" && (m.After["idle"] != "" || m.After["held"] != "") {
					t.Errorf("%s may end, does nothing and was left: %v", m.Name, m.After)
				}
			}
			if ended < 4 || doc.ActedOnWork != 0 {
				t.Errorf("%d machines ended, %d of them at work", ended, doc.ActedOnWork)
			}
		})
	}
}

func usd(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Errorf("%q is no amount", text)
	}
	return v
}
