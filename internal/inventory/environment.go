package inventory

import "strings"

// Production is the environment that people depend on. Nothing in it is ended lightly.
const Production = "production"

// productionNames are the spellings of Production in tags.
var productionNames = map[string]bool{Production: true, "prod": true, "prd": true, "live": true}

// CanonicalEnvironment returns an environment as rules and policies compare it: in lower case
// without spaces around it, and Production for each of its spellings.
func CanonicalEnvironment(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if productionNames[name] {
		return Production
	}
	return name
}

// InProduction reports whether the environment is production. Every part of curfew that
// treats production with more care asks it.
func (o Owner) InProduction() bool { return CanonicalEnvironment(o.Environment) == Production }
