package action_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/usage"
)

// BenchmarkRound previews a round of a large account: 10,000 proposals.
func BenchmarkRound(b *testing.B) {
	w := newWorld()
	var proposals []action.Proposal
	for i := range 10_000 {
		p := w.wants
		p.Resource, p.Condition = machine(fmt.Sprintf("i-%05d", i)).Inventory(), usage.True
		proposals = append(proposals, p)
	}
	l := action.Ladder{Clock: w.clock.Read, Account: w.ladder.Account}
	for b.Loop() {
		if r, err := l.Round(context.Background(), action.Look{Proposals: proposals}); err != nil || len(r.Lines) != len(proposals) {
			b.Fatalf("%d lines, %v", len(r.Lines), err)
		}
	}
}

// BenchmarkRedact redacts a line of the audit log.
func BenchmarkRedact(b *testing.B) {
	line := "dial postgres://curfew:hunter22@db:5432/x: connection refused after 3 attempts of 10 s"
	for b.Loop() {
		action.Redact(line)
	}
}
