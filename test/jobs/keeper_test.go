package jobs_test

import (
	"strings"
	"testing"
	"time"
)

// TestFollowedLogsReplaceADeadKeeper kills the keeper of a detached job, and then its command: who follows
// its logs sees it interrupted and going on to its end.
func TestFollowedLogsReplaceADeadKeeper(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("train.py", "import os, time\ntime.sleep(60 if os.environ['CURFEW_ATTEMPT'] == '1' else 0)\nprint('trained')\n")
	b.write("job.yaml", `apiVersion: curfew.job/v1
name: watched
resources: {cpus: 1}
max_runtime: 1h
run: python3 train.py `+b.dir+`
`)
	if _, err := b.output("run", "--detach", "job.yaml"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(b.processes()["command"]) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the command does not start")
		}
		time.Sleep(20 * time.Millisecond)
	}
	for left := b.processes()["keeper"]; len(left) > 0; left = b.processes()["keeper"] {
		kill(left)
		time.Sleep(20 * time.Millisecond)
	}
	kill(b.processes()["command"])
	log, err := b.output("logs", "-f", "watched")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"attempt 1 ended: interrupted", "attempt 2 starts", "trained", "succeeded"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}
