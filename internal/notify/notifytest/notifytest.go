// Package notifytest holds what the tests of all channels share: the messages that
// each of them has to bring across, and their golden files.
package notifytest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Golden compares with a file under testdata/golden.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", file)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read the golden file (write it with -update): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Case is a message with a name that is fit for a file.
type Case struct {
	Name    string
	Message action.Message
}

// ActsAt is when the warnings act.
var ActsAt = time.Date(2026, 11, 21, 15, 4, 0, 0, time.UTC)

// Warning is a complete warning of a machine of ana's, of team vision.
func Warning() action.Message {
	return action.Message{
		Kind: "warning", To: "ana", Item: "4f1c9a", Verb: policy.Terminate,
		Resource: &inventory.Resource{
			ID: "i-0abc", Name: "train-7", Kind: inventory.KindInstance, Cloud: "aws", Account: "123456789012",
			Region: "us-east-1", Zone: "us-east-1a", Type: "p3.2xlarge",
			Tags:  map[string]string{"team": "vision", "user": "ana"},
			Owner: inventory.Owner{Team: "vision", User: "ana"},
		},
		Because: "no GPU has worked for 3 hours, and no user is logged in",
		ActsAt:  ActsAt,
		Hourly:  inventory.Known(3060 * money.USD / 1000),
		Lost:    "the machine, its processes, and data that is only in memory; disk vol-0abc",
		Keep:    `curfew keep i-0abc --for 24h --reason "why"`,
		KeepTag: "aws ec2 create-tags --resources i-0abc --tags Key=curfew:keep-until,Value=2026-11-22T15:04:00Z --region " +
			"us-east-1",
		Undo: "none",
		Know: "its disks are deleted too",
		Evidence: []usage.Evidence{
			{Signal: "gpu_util_max_pct", Value: "0.4", Window: 3 * time.Hour, Coverage: 0.999, Source: "cloudwatch"},
			usage.Fact("logged_in", "0", "agent"),
		},
	}
}

// hostile is a name that tries everything it may be shown in.
const hostile = "<!channel> <https://evil.example|click> *b* `c` @here &amp; <script>alert(1)</script>\r\nBcc: " +
	"eve@evil.example\r\n\r\n\x1b[31m\u202ered =?utf-8?q?=0D=0AX-Evil:_1?= {{.}} \xff\x00 \"q\" 'q' ```"

// Hostile is a warning whose every text is hostile.
func Hostile() action.Message {
	m := Warning()
	r := *m.Resource
	r.ID, r.Name, r.Type, r.Account, r.Region, r.Zone = hostile, hostile, hostile, hostile, hostile, hostile
	r.Owner = inventory.Owner{Team: hostile, User: hostile}
	m.Resource, m.To, m.Item, m.Because, m.Know = &r, hostile, hostile, hostile, hostile
	m.Keep, m.KeepTag, m.Lost, m.Creator = "curfew keep "+hostile, "aws "+hostile, hostile, hostile
	m.Evidence = []usage.Evidence{{Signal: hostile, Value: hostile, Source: hostile, Coverage: usage.NoCoverage}}
	return m
}

// Cases are messages of every kind.
func Cases() []Case {
	unowned := Warning()
	r := *unowned.Resource
	r.Owner, r.Name, r.Zone = inventory.Owner{}, "", ""
	unowned.Resource, unowned.Hourly, unowned.Undo = &r, inventory.Fact[money.Amount]{}, ""
	unowned.Evidence, unowned.Know, unowned.Keep, unowned.To = nil, "", "", "#ml-cost"

	made := unowned
	made.Creator, made.To, made.Lost = "ana", "ana", ""

	only := Warning()
	only.ActsAt, only.Verb, only.Undo = time.Time{}, policy.Stop, "full"

	acted := Warning()
	acted.Kind, acted.ActsAt = "acted", time.Time{}

	alarm := Warning()
	alarm.Kind, alarm.ActsAt = "alarm", time.Time{}
	alarm.Because = "asked for 5 times in 1h; the provider still says running, and it still costs"

	many := Warning()
	for range 12 {
		many.Evidence = append(many.Evidence, usage.Fact("process", strings.Repeat("python ", 60), "agent"))
	}
	many.Because = strings.Repeat("a long story ", 400)

	return []Case{
		{"warning", Warning()},
		{"warning-unowned", unowned},
		{"warning-made", made},
		{"warning-without-action", only},
		{"warning-long", many},
		{"acted", acted},
		{"alarm", alarm},
		{
			"notice",
			action.Message{Kind: "notice", To: "oncall", Because: "all actions are frozen by ana: prices look wrong"},
		},
		{"empty", action.Message{}},
		{"hostile", Hostile()},
	}
}
