package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// TestRecordFromCloudWatch checks that the history that CloudWatch has of a seeded account becomes
// a trace, and a backtest of it releases the machines that rested and leaves the one that works.
func TestRecordFromCloudWatch(t *testing.T) {
	l := newLadder(t)
	var record view.Record
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "record", "--from", "cloudwatch", "--since", "2h", "-o",
		"trace.csv.gz", "--format", "json")), &record); err != nil {
		t.Fatal(err)
	}
	// EC2 reports each machine every five minutes, and the agent its GPUs every minute.
	if record.Machines < 10 || record.Samples < int64(record.Machines)*60 || len(record.BlindSpots) > 0 {
		t.Fatalf("recorded %+v", record)
	}
	idle, busy, unmeasured := l.account.IDs[sandbox.Idle], l.account.IDs[sandbox.Busy],
		l.account.IDs[sandbox.Unmeasured]
	at := l.now.Add(-5 * time.Minute).Format(time.RFC3339)
	l.write("idle.yaml", `apiVersion: curfew.policy/v1
policies:
  - {name: idle, select: {kind: instance}, when: 'duty.state in ["idle", "held"] && duty.lasting >= duration("30m")', then: [{warn: {grace: 15m}}, {do: terminate}]}
`)
	for id, want := range map[string]string{
		idle: "duty now: idle", busy: "duty now: busy", unmeasured: "duty now: unknown",
	} {
		if text := l.curfew(ExitDone, "policy", "explain", id, "--trace", "trace.csv.gz",
			"--policy", "idle.yaml", "--at",
			at); !strings.Contains(text, want) {
			t.Errorf("the trace says of %s, and not %q:\n%s", id, want, text)
		}
	}
	var backtest struct {
		Trace struct {
			Resources int `json:"resources"`
		} `json:"trace"`
		Results []struct {
			Name     string  `json:"name"`
			Released float64 `json:"released_hours"`
			Hours    float64 `json:"resource_hours"`
			CutShort int     `json:"cut_short"`
		} `json:"results"`
	}
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "backtest", "--trace", "trace.csv.gz", "--policy", "idle.yaml",
		"--baselines", "-o", "json")), &backtest); err != nil {
		t.Fatal(err)
	}
	for _, r := range backtest.Results {
		if r.Name == "idle" && (r.Released < 1 || r.Released > r.Hours/2 || r.CutShort > 0) {
			t.Errorf("the policy releases %+v", r)
		}
	}
	if len(backtest.Results) < 5 {
		t.Errorf("results are %+v", backtest.Results)
	}
}
