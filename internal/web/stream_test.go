package web_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
)

// TestPagesShareOneStream runs the script of the stream for three pages of one browser: they share each
// request, and after a drop and a refusal the stream goes on after the last event that was received.
func TestPagesShareOneStream(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "node", "testdata/stream.mjs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		Requests []string   `json:"requests"`
		Pages    [][]string `json:"pages"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := []string{"", "8", "8", "9"}; !slices.Equal(got.Requests, want) {
		t.Errorf("the stream is asked for after %q, want %q", got.Requests, want)
	}
	for i, told := range got.Pages {
		events := 0
		for _, what := range told {
			if what == "event" {
				events++
			}
		}
		if events < 2 || told[0] != "connecting" || !slices.Contains(told, "open") {
			t.Errorf("page %d is told %q", i, told)
		}
	}
}
