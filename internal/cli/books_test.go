package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// costsDoc is what costs -o json says, as far as it is looked at.
type costsDoc struct {
	Rows []struct {
		Key                         []string
		Total, Used, Wasted, Cannot string
	}
	Total struct {
		Total   string `json:"total_usd"`
		Used    string `json:"used_usd"`
		Wasted  string `json:"wasted_usd"`
		Cannot  string `json:"cannot_judge_usd"`
		Other   string `json:"other_usd"`
		Unknown int64  `json:"unknown_seconds"`
	} `json:"total"`
}

func (l *ladderTest) costs(args ...string) costsDoc {
	l.t.Helper()
	var doc costsDoc
	since := l.clock().Add(-48 * time.Hour).Format(time.RFC3339)
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, append([]string{"costs", "--since", since, "-o", "json"}, args...)...)), &doc); err != nil {
		l.t.Fatal(err)
	}
	return doc
}

func amount(t *testing.T, text string) money.Amount {
	t.Helper()
	v, err := money.ParseAmount(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRoundsFillTheLedger lets scans and passes of the policies run on a real AWS API
// for an hour, and finds in the ledger what the account cost in that time: the same in
// every division, nothing before the first round, and nothing twice.
func TestRoundsFillTheLedger(t *testing.T) {
	l := newLadder(t)
	l.pass(40 * time.Minute)
	scan := func() { l.curfewAny("scan", "--regions", "us-east-1", "--quiet") }
	scan()
	if doc := l.costs(); doc.Total.Total != "0.00" {
		t.Errorf("%s was charged for the time before the first round", doc.Total.Total)
	}
	for range 6 {
		l.pass(10 * time.Minute)
		l.curfewAny("enforce", "--once", "--policy", "policies.yaml")
	}
	scan()
	before := l.costs()
	if amount(t, before.Total.Total) <= 0 || before.Total.Unknown != 0 {
		t.Fatalf("after an hour the ledger has %+v", before.Total)
	}
	scan() // at the same moment: the same round
	if again := l.costs(); again.Total != before.Total {
		t.Errorf("a round twice over made %+v of %+v", again.Total, before.Total)
	}
	sum := func(d costsDoc) money.Amount {
		total, err := money.Sum(amount(t, d.Total.Used), amount(t, d.Total.Wasted), amount(t, d.Total.Cannot), amount(t, d.Total.Other))
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	if got, want := sum(before), amount(t, before.Total.Total); got-want > 2*money.Cent || want-got > 2*money.Cent {
		t.Errorf("used, wasted, unjudged and other come to %s, the total is %s", got, want)
	}
	if amount(t, before.Total.Wasted) <= 0 {
		t.Errorf("machines that idle in plain sight waste nothing: %+v", before.Total)
	}
	for _, by := range []string{"team", "purpose", "kind", "duty", "resource", "region,category", "team,purpose,pricing"} {
		if doc := l.costs("--by", by); doc.Total.Total != before.Total.Total {
			t.Errorf("by %s it comes to %s, all together to %s", by, doc.Total.Total, before.Total.Total)
		}
	}
	idle := l.costs("--by", "duty", "--where", "resource="+"aws/123456789012/us-east-1/instance/"+l.account.IDs[sandbox.Idle])
	if amount(t, idle.Total.Wasted) <= 0 || amount(t, idle.Total.Used) != 0 {
		t.Errorf("the idle machine has %+v", idle.Total)
	}
	if text := l.curfew(ExitDone, "costs", "--by", "team", "--since", "2d", "-o", "html"); !strings.Contains(text, "<svg") {
		t.Error("the page has no picture")
	}
	// Nothing is known of ten hours without a round, except of what the provider says
	// that it ran throughout.
	l.pass(10 * time.Hour)
	scan()
	after := l.costs()
	if amount(t, after.Total.Total) <= amount(t, before.Total.Total) {
		t.Errorf("ten hours later it is %+v after %+v", after.Total, before.Total)
	}
}
