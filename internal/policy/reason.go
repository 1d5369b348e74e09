package policy

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/usage"
)

var (
	anyNumber = lazyregexp.New(`\d+(\.\d+)?`)
	ratios    = lazyregexp.New(`\d+ of \d+`)
	gpuLabel  = lazyregexp.New(`GPU( [^ :]+(:[^ :]+)?)?: `)
)

// Why returns the deciding part of an explained answer with its reason, such as "when: duty.lasting
// >= duration("5m") is false: duty.lasting is 2m13s".
func (o Outcome) Why() string {
	for _, part := range o.Parts {
		if part.Answer == o.Answer && (part.Answer != usage.True || part.Name != "select") {
			return part.Name + ": " + part.Why
		}
	}
	return o.Answer.String()
}

// NormalizeReason masks measured values in a reason of [Outcome.Why], so that equal reasons compare
// equal.
func NormalizeReason(why string) string {
	part, why, ok := strings.Cut(why, ": ")
	if !ok {
		return part
	}
	if part == "schedule" {
		return "schedule: not due"
	}
	var out []string
	for _, clause := range strings.Split(why, "; ") {
		if clause = normalizeClause(clause); !slices.Contains(out, clause) {
			out = append(out, clause)
		}
	}
	return part + ": " + strings.Join(out, "; ")
}

func normalizeClause(clause string) string {
	if condition, facts, ok := strings.Cut(clause, " is false: "); ok {
		var known []string
		for _, fact := range strings.Split(facts, ", ") {
			if _, value, _ := strings.Cut(fact, " is "); strings.HasPrefix(value, `"`) {
				known = append(known, maskNumbers(strings.ReplaceAll(fact, `"`, "")))
			}
		}
		if known == nil {
			return condition + " is false"
		}
		return strings.Join(known, ", ")
	}
	fact, reason, ok := strings.Cut(clause, " is unknown: ")
	if !ok {
		return clause
	}
	if strings.HasPrefix(fact, "duty.") {
		fact = "duty"
		reason, _, _ = strings.Cut(reason, ", duty.")
	}
	return fact + " is unknown: " + maskNumbers(gpuLabel.ReplaceAllString(reason, ""))
}

// maskNumbers masks all numbers except ratios such as "3 of 8", of which there are few.
func maskNumbers(s string) string {
	var b strings.Builder
	for {
		at := ratios.FindStringIndex(s)
		if at == nil {
			return b.String() + anyNumber.ReplaceAllString(s, "…")
		}
		b.WriteString(anyNumber.ReplaceAllString(s[:at[0]], "…") + s[at[0]:at[1]])
		s = s[at[1]:]
	}
}
