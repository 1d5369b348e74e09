package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TestChartValuesAreRead parses the files that the chart mounts with curfew's own readers.
// test/helm renders the chart.
func TestChartValuesAreRead(t *testing.T) {
	const chart = "../../deploy/helm/curfew"
	files, err := filepath.Glob(chart + "/ci/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	policies := 0
	for _, file := range append(files, chart+"/values.yaml") {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var values struct {
			Config   map[string]any
			Policies map[string]string
		}
		if err := yaml.Unmarshal(raw, &values); err != nil {
			t.Fatal(err)
		}
		if values.Config == nil {
			t.Fatalf("%s has no config", file)
		}
		text, err := yaml.Marshal(values.Config)
		if err != nil {
			t.Fatal(err)
		}
		c := config.Default()
		if err := config.Decode(file, text, &c); err != nil {
			t.Error(err)
		}
		for name, text := range values.Policies {
			policies++
			if _, err := policy.Parse(name, []byte(text)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if policies == 0 {
		t.Error("no policy was read")
	}
}
