// Command registry prints the names of rules, policy facts and operations, one per line, as the
// reference pages list them.
package main

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/policy"
)

func main() {
	for _, r := range finding.All(aws.Rules()) {
		fmt.Println("rule", r.ID)
	}
	for _, f := range policy.AllFacts() {
		fmt.Println("fact", f.Name)
	}
	for _, e := range ops.All() {
		fmt.Println("operation", e.Describe().ID)
	}
}
