package policy

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/usage"
)

var (
	figure  = lazyregexp.New(`\d+(\.\d+)?`)
	tallies = lazyregexp.New(`\d+ of \d+`)
	oneGPU  = lazyregexp.New(`GPU( [^ :]+(:[^ :]+)?)?: `)
)

// Why returns the part of an explained answer that decided, with its reason, such as
// "when: duty.lasting >= duration("5m") is false: duty.lasting is 2m13s".
func (o Outcome) Why() string {
	for _, part := range o.Parts {
		if part.Answer == o.Answer && (part.Answer != usage.True || part.Name != "select") {
			return part.Name + ": " + part.Why
		}
	}
	return o.Answer.String()
}

// Reason makes alike reasons alike, of those that [Outcome.Why] returns: what was measured
// differs from time to time, and what a policy says does not.
func Reason(why string) string {
	part, why, ok := strings.Cut(why, ": ")
	if !ok {
		return part
	}
	if part == "schedule" {
		return "schedule: not due"
	}
	var out []string
	for _, clause := range strings.Split(why, "; ") {
		if clause = plainClause(clause); !slices.Contains(out, clause) {
			out = append(out, clause)
		}
	}
	return part + ": " + strings.Join(out, "; ")
}

func plainClause(clause string) string {
	if condition, facts, ok := strings.Cut(clause, " is false: "); ok {
		var known []string
		for _, fact := range strings.Split(facts, ", ") {
			if _, value, _ := strings.Cut(fact, " is "); strings.HasPrefix(value, `"`) {
				known = append(known, withoutFigures(strings.ReplaceAll(fact, `"`, "")))
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
	return fact + " is unknown: " + withoutFigures(oneGPU.ReplaceAllString(reason, ""))
}

// withoutFigures leaves out all figures but tallies, of which there are few.
func withoutFigures(s string) string {
	var b strings.Builder
	for {
		at := tallies.FindStringIndex(s)
		if at == nil {
			return b.String() + figure.ReplaceAllString(s, "…")
		}
		b.WriteString(figure.ReplaceAllString(s[:at[0]], "…") + s[at[0]:at[1]])
		s = s[at[1]:]
	}
}
