package config

import (
	"strings"
	"testing"
)

// TestCountsComeFromOnePlace: a unit is counted in one file, at one server or at one gateway, and what is
// chosen there belongs to it.
func TestCountsComeFromOnePlace(t *testing.T) {
	for text, c := range map[string]Counts{
		"": {Gateway: "vision", Of: Predictions, Model: "m"},
		"a file, from the url of a server, or from a gateway": {},
		"from the url of a server, or from a gateway":         {File: "a.csv", Gateway: "vision", Of: Predictions},
		"a server need a query":                               {URL: "http://a"},
		`or output_tokens, not ""`:                            {Gateway: "vision"},
		`or output_tokens, not "rows"`:                        {Gateway: "vision", Of: "rows"},
		"choose among the counts of a gateway":                {File: "a.csv", Of: Predictions},
	} {
		err := Unit{Name: "unit", Counts: c}.check()
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%+v: %v, want %q", c, err, text)
		}
	}
}
