package backtest

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/test/data"
)

// rowsOfPods reads a file of the public trace of image generation: by pod and time, of the
// first pods.
func rowsOfPods(t testing.TB, file string, pods int, each func(pod, at, value string)) {
	t.Helper()
	f, err := os.Open(data.Path(t, "alibaba-gentd26/"+file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines, seen := bufio.NewScanner(r), map[string]bool{}
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ",")
		if fields[0] == "pod" {
			continue
		}
		if seen[fields[0]] = true; len(seen) > pods {
			return
		}
		each(fields[0], fields[1], fields[2])
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestPublicTraceReplayed replays pods of the public trace, their memory joined to their
// utilization, at a cadence and at every sample, against processes and looks.
func TestPublicTraceReplayed(t *testing.T) {
	const pods = 6
	memory := map[[2]string]string{}
	rowsOfPods(t, "pod_gpu_memory_used_bytes.csv.gz", pods, func(pod, at, value string) {
		memory[[2]string{pod, at}] = value
	})
	var b strings.Builder
	b.WriteString("resource,time,type,gpu_util,mem_used_bytes\n")
	joined := 0
	rowsOfPods(t, "pod_gpu_duty_cycle.csv.gz", pods, func(pod, at, value string) {
		used := memory[[2]string{pod, at}]
		if used != "" {
			joined++
		}
		fmt.Fprintf(&b, "%s,%s,g5.xlarge,%s,%s\n", pod, at, value, used)
	})
	if joined < 1000*pods {
		t.Fatalf("%d samples of memory joined", joined)
	}
	acted := 0
	for _, pol := range parsed(t, livePolicies).Policies {
		switch pol.Name {
		case "five-minutes", "five-minutes-and-grace", "between-samples", "only-for-a-while",
			"well-covered", "only-held":
		default:
			continue
		}
		t.Run(pol.Name, func(t *testing.T) {
			p := params(0)
			p.Format.Step, p.Baselines, p.Policies = 57*time.Second, false, &policy.Set{
				Policies: []*policy.Policy{pol},
			}
			h := chronicleOf(t, b.String(), p)
			for i, d := range h.decisions {
				if i%20 == 0 { // a look reads twelve hours of every pod
					h.agree(t, pol.Name, d.Time, false, p)
					h.agree(t, pol.Name, d.Time.Add(-time.Second), true, p)
				}
			}
			p.Every, p.MaxRoundGap = 10*time.Minute, time.Hour
			acted += len(h.decisions) + len(sameAsProcesses(t, b.String(), p))
		})
	}
	if acted < 100 {
		t.Errorf("%d decisions", acted)
	}
}
