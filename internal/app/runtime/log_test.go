package runtime_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
)

// TestJSONLogs checks times in UTC, durations in seconds, and that every line is JSON.
func TestJSONLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := runtime.NewLogger(&out, true)
		at := time.Now().In(time.FixedZone("east", 9*3600))
		log.Info("the pass failed", "again_in", 1500*time.Millisecond, "at", at, "error", errors.New("denied"))
		lines := runtime.LogLines(log)
		fmt.Fprint(lines, "curfew: the witness ")
		fmt.Fprint(lines, "is gone\ncurfew: another\n\nunfinished")
		var got []map[string]any
		for line := range strings.Lines(out.String()) {
			var one map[string]any
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			got = append(got, one)
			if when, err := time.Parse(time.RFC3339, fmt.Sprint(one["time"])); err != nil || !when.Equal(time.Now()) ||
				!strings.HasSuffix(fmt.Sprint(one["time"]), "Z") {
				t.Errorf("the time is %v, %v", one["time"], err)
			}
		}
		if len(got) != 3 || got[0]["again_in"] != 1.5 || got[0]["at"] != at.UTC().Format(time.RFC3339Nano) ||
			got[0]["error"] != "denied" ||
			got[1]["msg"] != "the witness is gone" || got[1]["level"] != "WARN" || got[2]["msg"] != "another" {
			t.Errorf("the log is\n%s", &out)
		}
	})
}

// TestLogsRepeatedErrorOncePerMinute checks that the line contains the number of repetitions, and
// that another error is logged immediately.
func TestLogsRepeatedErrorOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := runtime.NewLogger(&out, false)
		for i := range 150 { // over 2m30s
			log.Error("the pass failed", "source", "aws/1", "failures", i, "error", errors.New("connection refused"))
			if i == 30 {
				log.Error("the pass failed", "source", "aws/2", "error", errors.New("connection refused"))
				log.With("session", "a").Warn("a session could not be kept")
				log.With("session", "b").Warn("a session could not be kept")
			}
			log.Info("routine")
			time.Sleep(time.Second)
		}
		count := func(text string) int { return strings.Count(out.String(), text) }
		if count("source=aws/1") != 3 || count("repeated=59") != 2 || count("source=aws/2") != 1 ||
			count("could not be kept") != 2 || count("routine") != 150 {
			t.Errorf("the log is\n%s", &out)
		}
	})
}
