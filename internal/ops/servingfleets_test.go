package ops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestListsFleetsOfAServiceAndOfAFile lists fleets with their decisions in a service, and without any
// elsewhere: by the policies of the configuration.
func TestListsFleetsOfAServiceAndOfAFile(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "p.yaml")
	text := "apiVersion: curfew.policy/v1\npolicies:\n" +
		"  - {name: a, then: [{do: scale, fleet: asg/embed, min: 1, max: 3}]}\n"
	if err := os.WriteFile(policies, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	req := apptest.Request(t, "policies: ["+policies+"]\n")
	list := func() view.ServingFleets {
		t.Helper()
		r, err := ListFleets.Do(t.Context(), &Call{Request: req, Owner: true}, Paging{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Doc
	}
	if got := list(); len(got.Fleets) != 1 || got.Fleets[0].ID != "asg/embed" || got.Fleets[0].Wanted != nil ||
		got.Fleets[0].Demand.Known || got.Reason == "" {
		t.Errorf("by the file: %+v", got)
	}
	req.Fleets = func() view.ServingFleets {
		return view.ServingFleets{Fleets: []view.ServingFleet{{ID: "asg/embed", Wanted: new(2)}}}
	}
	if got := list(); len(got.Fleets) != 1 || got.Fleets[0].Wanted == nil || *got.Fleets[0].Wanted != 2 {
		t.Errorf("of the service: %+v", got)
	}
	_, err := GetFleetHistory.Do(t.Context(), &Call{Request: req, Owner: true}, ByID{ID: "embed"})
	if err == nil || !strings.Contains(err.Error(), "no fleet embed") {
		t.Errorf("the history of what is no fleet: %v", err)
	}
}
