package inventory

import (
	"slices"
	"strings"
	"unicode"
)

// Production is the environment with real users, in which actions need more care.
const Production = "production"

// productionNames are the spellings of Production in tags.
var productionNames = []string{Production, "prod", "prd", "live"}

// notProduction are words that mark a name with a spelling of Production as another environment:
// pre-production, non-prod, production-like.
var notProduction = []string{"non", "not", "no", "pre", "like"}

// CanonicalEnvironment returns an environment as rules and policies compare it: in lower case
// without surrounding spaces, and Production for each of its spellings. Longer names, such as
// prod-eu, are kept; [IsProduction] classifies them.
func CanonicalEnvironment(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if slices.Contains(productionNames, name) {
		return Production
	}
	return name
}

// IsProduction reports whether an environment is production: its name is a spelling of Production
// or has one as a word, with or without a number (prod-eu, eu_west_1.PRD, prod2). Words are
// separated by anything but letters and digits, so reproduction, nonprod and preprod are not
// production, and neither are non-prod, pre-production and production-like. Doubtful names are:
// test-prod is production. An empty name is unknown and not production.
func IsProduction(name string) bool {
	found := false
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, word := range words {
		if slices.Contains(notProduction, word) {
			return false
		}
		found = found || slices.Contains(productionNames, strings.TrimRight(word, "0123456789"))
	}
	return found
}

// SameEnvironment reports whether an environment is the wanted one. If wanted is a spelling of
// Production, every production environment matches.
func SameEnvironment(wanted, name string) bool {
	if wanted = CanonicalEnvironment(wanted); wanted == Production {
		return IsProduction(name)
	}
	return wanted == CanonicalEnvironment(name)
}

// InProduction reports whether the owner's environment is production. Every special treatment of
// production uses it.
func (o Owner) InProduction() bool { return IsProduction(o.Environment) }
