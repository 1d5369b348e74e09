package job

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/test/data"
)

// nodeSpan is the time for which a spot node ran.
type nodeSpan struct {
	name     string
	from, to time.Duration
}

// bamboo reads the spot nodes of a recorded cluster of uclasystem/bamboo (NSDI 2023).
func bamboo(t *testing.T) (spans []nodeSpan) {
	t.Helper()
	f, err := os.Open(data.Path(t, "bamboo-spot/aws-p3.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]int{}
	for _, row := range rows[1:] {
		ms, err := strconv.ParseInt(row[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Duration(ms) * time.Millisecond
		if row[1] == "add" {
			open[row[2]] = len(spans)
			spans = append(spans, nodeSpan{row[2], at, 1000 * time.Hour})
		} else if i, ok := open[row[2]]; ok {
			spans[i].to = at
		}
	}
	return spans
}

// TestNodesOfOneJobShareOneFate runs jobs of several nodes on a recorded spot cluster whose nodes are taken
// away alone and in bulk. The loss of one node ends its attempt, the machines of an attempt are launched and
// released together, and the next attempt goes on from the newest snapshot of all ranks.
func TestNodesOfOneJobShareOneFate(t *testing.T) {
	spans := bamboo(t)
	for _, nodes := range []int{2, 8, 16} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			w := newWorld(t, uint64(nodes))
			w.steps, w.saveEvery = 90, 3
			zero := w.now
			running := func(at time.Time) (out []nodeSpan) {
				for _, s := range spans {
					if d := at.Sub(zero); s.from <= d && d < s.to {
						out = append(out, s)
					}
				}
				return out
			}
			rate := *w.pools[0].Rate
			w.pools = []session.Pool{{Type: "p3.2xlarge", Region: "us-east-1", Zone: "a", Spot: true, Rate: &rate}}
			w.up = func(_ session.Pool, at time.Time) bool { return len(running(at)) >= nodes }
			taken := map[string]nodeSpan{} // the recorded node of each machine
			id := w.submit(fmt.Sprintf("resources: {gpus: V100, nodes: %d}\ncapacity: spot\n"+
				"retries: {interruptions: 10000}\n", nodes))
			lost := 0
			j := w.run(id, 1, func() {
				for mid, m := range w.machines {
					if !m.goneAt.IsZero() {
						continue
					}
					if _, ok := taken[mid]; !ok {
						up := running(m.LaunchedAt)
						taken[mid] = up[len(up)-1-m.Node]
					}
					if w.now.Sub(zero) >= taken[mid].to {
						m.goneAt = w.now
						lost++
					}
				}
				checkFates(t, w, nodes)
			})
			if j.State != Succeeded || w.store.step != w.steps || lost == 0 || len(j.Attempts) < 2 {
				t.Errorf("%s (%s) at step %d after %d attempts and %d lost nodes", j.State, j.Why, w.store.step,
					len(j.Attempts), lost)
			}
			saved := int64(0)
			for _, a := range j.Attempts {
				if from := a.Start.Step; !a.CommandAt.IsZero() && from != nil && *from < saved {
					t.Errorf("attempt %d starts from step %d, and %d was saved", a.Number, *from, saved)
				}
				if a.Saved.Step != nil {
					saved = *a.Saved.Step
				}
			}
			checkMoney(t, w, j)
			t.Logf("%d lost nodes, %d attempts, %s", lost, len(j.Attempts), j.EndedAt.Sub(j.RequestedAt))
		})
	}
}

// checkFates checks that each attempt has all its machines from its launch, and that no attempt has
// machines next to another.
func checkFates(t *testing.T, w *world, nodes int) {
	t.Helper()
	per, alive := map[string][]int{}, map[string]bool{}
	for _, m := range w.machines {
		per[m.Session] = append(per[m.Session], m.Node)
		if m.goneAt.IsZero() {
			alive[m.Session] = true
		}
	}
	for s, all := range per {
		if slices.Sort(all); len(all) != nodes || all[0] != 0 || all[nodes-1] != nodes-1 {
			t.Fatalf("session %s has the nodes %v", s, all)
		}
	}
	if len(alive) > 1 {
		t.Fatalf("machines of %d attempts run", len(alive))
	}
}
