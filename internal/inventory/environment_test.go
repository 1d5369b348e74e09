package inventory

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestInProduction(t *testing.T) {
	for name, want := range map[string]bool{
		"production": true, "prod": true, "prd": true, "live": true, "PROD": true, " Production ": true, "PRD": true,
		"prod-eu": true, "eu-west-1-prod": true, "live_us": true, "prod2": true, "acme.Prd/eu": true, "prod-dr": true,
		"test-prod": true,
		"":          false, "dev": false, "staging": false, "preprod": false, "non-prod": false, "nonprod": false,
		"production-like": false,
		"pre-production":  false, "pre_prod_eu": false, "not prod": false, "reproduction": false, "product": false,
		"alive":    false,
		"delivery": false, "livestock": false, "prodigy": false, "2": false, "-": false,
	} {
		if got := (Owner{Environment: name}).InProduction(); got != want {
			t.Errorf("%q is production: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]string{"PRD": "production", "Dev ": "dev", "": "", "prod-eu": "prod-eu"} {
		if got := CanonicalEnvironment(name); got != want {
			t.Errorf("%q is compared as %q, want %q", name, got, want)
		}
	}
	for _, tc := range []struct {
		wanted, name string
		want         bool
	}{
		{"production", "prod-eu", true}, {"PRD", "live", true}, {"prod-eu", "prod-eu", true},
		{"prod-eu", "prod-us", false},
		{"prod-eu", "production", false}, {"dev", "Dev", true}, {"dev", "prod", false}, {"production", "", false},
	} {
		if got := SameEnvironment(tc.wanted, tc.name); got != tc.want {
			t.Errorf("%q is %q: %v, want %v", tc.name, tc.wanted, got, tc.want)
		}
	}
}

// TestConfiguredProduction: names that the configuration adds are production, whole and in any case.
func TestConfiguredProduction(t *testing.T) {
	m := DefaultTagMapping()
	m.Production = []string{"Main", "customer facing"}
	for name, want := range map[string]bool{
		"main": true, " MAIN ": true, "Customer Facing": true, "maintenance": false, "main-eu": false, "prod": true,
	} {
		r := &Resource{Tags: map[string]string{"Env": name}}
		if err := m.Apply(r); err != nil {
			t.Fatal(err)
		}
		if r.Owner.InProduction() != want || m.Owner(r.Tags).InProduction() != want {
			t.Errorf("%q is production: %v, want %v", name, !want, want)
		}
	}
}

// TestProductionIsDefinedOnce: nothing but environment.go compares an environment with a
// spelling of production.
func TestProductionIsDefinedOnce(t *testing.T) {
	const compares = `([=!]=|case|EqualFold\(|Contains\(|HasPrefix\(|HasSuffix\().*`
	spelling := regexp.MustCompile(compares + `"(?i:prod|prd)"|nvironment.*` + compares +
		`"(?i:production|live)"|map\[string\]bool.*"(?i:prod|prd)"`)
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "testdata" ||
			d.Name() == "shared"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			name == filepath.Join("..", "..", "internal", "inventory", "environment.go"):
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(src), "\n") {
			line, _, _ := strings.Cut(line, "//")
			if strings.Contains(line, "example:") || strings.HasPrefix(strings.TrimSpace(line), "where:") {
				continue // of the language of policies, which asks the one definition
			}
			if spelling.MatchString(line) {
				t.Errorf("%s:%d: %s: ask inventory.IsProduction", name, i+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
