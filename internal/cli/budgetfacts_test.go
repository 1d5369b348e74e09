package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const budgetPolicies = `apiVersion: curfew.policy/v1
policies:
  - name: over-budget
    select: {kind: instance}
    when: budget.state == "over"
    then: [{warn: {notify: [owner], grace: 15m}}, {do: notify}]
`

// TestPoliciesReadBudgetFacts checks that the state of a budget by the ledger is a fact of the
// machines that spend from it; without a budget the condition is unknown.
func TestPoliciesReadBudgetFacts(t *testing.T) {
	l := newLadder(t)
	l.write("over.yaml", budgetPolicies)
	lines := func() int {
		return strings.Count(l.curfew(ExitDone, "enforce", "--once", "--policy", "over.yaml", "-o", "json"),
			`"policy": "over-budget"`)
	}
	l.pass(40 * time.Minute)
	l.curfewAny("scan", "--regions", "us-east-1", "--quiet")
	l.pass(20 * time.Minute)
	l.curfewAny("scan", "--regions", "us-east-1", "--quiet")
	if n := lines(); n != 0 {
		t.Errorf("%d proposals without a budget", n)
	}
	config := fmt.Sprintf(ladderConfig, "http://127.0.0.1:1")
	l.write("curfew.yaml", config+"budgets: [{id: all, purpose: any, amount: 1000000}]\n")
	if n := lines(); n != 0 {
		t.Errorf("%d proposals within the budget", n)
	}
	l.write("curfew.yaml", config+"budgets: [{id: all, purpose: any, amount: 0.01}]\n")
	if n := lines(); n == 0 {
		t.Error("a budget that is spent proposes nothing")
	}
	if text := l.curfew(ExitDone, "budget", "-o", "json"); !strings.Contains(text, `"state": "over"`) {
		t.Errorf("the budget says %s", text)
	}
}
