package inventory

import "testing"

func TestInProduction(t *testing.T) {
	for name, want := range map[string]bool{
		"production": true, "prod": true, "prd": true, "live": true, "PROD": true, " Production ": true,
		"": false, "dev": false, "staging": false, "preprod": false, "non-prod": false, "production-like": false, "delivery": false,
	} {
		if got := (Owner{Environment: name}).InProduction(); got != want {
			t.Errorf("%q is production: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]string{"PRD": "production", "Dev ": "dev", "": ""} {
		if got := CanonicalEnvironment(name); got != want {
			t.Errorf("%q is compared as %q, want %q", name, got, want)
		}
	}
}
