package inventory

import (
	"slices"
	"strings"
	"unicode"
)

// Production is the environment that people depend on. Nothing in it is ended lightly.
const Production = "production"

// productionNames are the spellings of Production in tags.
var productionNames = []string{Production, "prod", "prd", "live"}

// notProduction are the words that make a name with a spelling of Production in it that of
// another environment: pre-production, non-prod, production-like.
var notProduction = []string{"non", "not", "no", "pre", "like"}

// CanonicalEnvironment returns an environment as rules and policies compare it: in lower case
// without spaces around it, and Production for each of its spellings. A longer name, such as
// prod-eu, stays what it is; whether it is production says [IsProduction].
func CanonicalEnvironment(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if slices.Contains(productionNames, name) {
		return Production
	}
	return name
}

// IsProduction reports whether an environment is production: by a spelling of it, alone or as
// a word of a longer name, with a number or without (prod-eu, eu_west_1.PRD, prod2). Words are
// divided by everything that is neither a letter nor a digit, so that reproduction, nonprod
// and preprod are not production, and neither are non-prod, pre-production and production-like.
// In doubt it is: test-prod is production. An empty name is not known to be any.
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

// SameEnvironment reports whether an environment is the wanted one. A wanted environment that
// is a spelling of Production means everything that is production.
func SameEnvironment(wanted, name string) bool {
	if wanted = CanonicalEnvironment(wanted); wanted == Production {
		return IsProduction(name)
	}
	return wanted == CanonicalEnvironment(name)
}

// InProduction reports whether the environment is production. Every part of curfew that
// treats production with more care asks it.
func (o Owner) InProduction() bool { return IsProduction(o.Environment) }
