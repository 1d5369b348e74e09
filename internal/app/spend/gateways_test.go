package spend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
)

// TestQueriesRegisteredGateways covers gateways that respond, refuse the key, are down, or are no
// gateways.
func TestQueriesRegisteredGateways(t *testing.T) {
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/curfew/stats" || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"schema":%q,"version":"1","pools":[{"name":"p","utilization":0.7}]}`, stats.Schema)
	}))
	defer good.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"schema":"curfew.other/v1"}`)
	}))
	defer other.Close()
	dir := t.TempDir()
	text := fmt.Sprintf(`serve:
  gateways:
    - {name: good, url: %q, key_env: KEY}
    - {name: keyless, url: %q}
    - {name: unset, url: %q, key_env: MISSING}
    - {name: other, url: %q}
    - {name: down, url: "http://127.0.0.1:1"}
`, good.URL, good.URL, good.URL, other.URL)
	if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	req := runtime.NewProcess(runtime.Host{
		Now: time.Now, Dir: dir, Log: os.Stderr,
		Lookup: func(name string) (string, bool) { return "secret", name == "KEY" },
	}).Request()
	doc, err := Gateways(t.Context(), req)
	if err != nil || len(doc.Gateways) != 5 {
		t.Fatal(doc, err)
	}
	if g := doc.Gateways[0]; g.Name != "good" || g.Reason != "" || g.Stats == nil ||
		*g.Stats.Pools[0].Utilization != 0.7 {
		t.Errorf("%+v", g)
	}
	for i, want := range []string{"", "401", "no MISSING", "is not curfew.gateway/v1", "ask the gateway"} {
		if g := doc.Gateways[i]; i > 0 && (g.Stats != nil || !strings.Contains(g.Reason, want)) {
			t.Errorf("%s: %+v, want %q", g.Name, g, want)
		}
	}
}

// TestCountsAtAGateway counts units at a gateway, of one model and by team, and refuses a time
// before it counted. An hour without units counts as well.
func TestCountsAtAGateway(t *testing.T) {
	hour := time.Date(2026, 11, 2, 5, 0, 0, 0, time.UTC)
	made := stats.Units{Schema: stats.UnitsSchema, CountedFrom: hour, At: hour.Add(150 * time.Minute)}
	made.Hours = []stats.HourUnits{
		{Hour: hour, Model: "m", Owner: "search", Predictions: 7, OutputTokens: 100},
		{Hour: hour, Model: "other", Owner: "search", Predictions: 1000},
		{Hour: hour.Add(time.Hour), Model: "m", Predictions: 5, InputTokens: 3},
	}
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		_ = json.NewEncoder(w).Encode(made)
	}))
	defer server.Close()
	dir := t.TempDir()
	text := fmt.Sprintf("serve: {gateways: [{name: vision, url: %q}]}\n", server.URL)
	if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	req := runtime.NewProcess(runtime.Host{
		Now: time.Now, Dir: dir, Log: os.Stderr, Lookup: func(string) (string, bool) { return "", false },
	}).Request()
	count := func(c config.Counts, since time.Time, by ...ledger.Dimension) ([]costs.Count, error) {
		u, err := countAtGateway(req, config.Unit{Name: "unit", Counts: c}, counted{})
		if err != nil {
			return nil, err
		}
		return u.counts(t.Context(), nil, costs.Query{Since: since, Until: hour.Add(48 * time.Hour), By: by})
	}
	vision := func(of, model string) config.Counts { return config.Counts{Gateway: "vision", Of: of, Model: model} }
	for name, c := range map[string]struct {
		counts config.Counts
		by     []ledger.Dimension
		want   []costs.Count
	}{
		"predictions of a model": {vision(config.Predictions, "m"), nil, []costs.Count{
			{Time: hour, Count: 7000}, {Time: hour.Add(time.Hour), Count: 5000}, {Time: hour.Add(2 * time.Hour)},
		}},
		"output tokens of a model": {vision(config.OutputTokens, "m"), nil, []costs.Count{
			{Time: hour, Count: 100_000}, {Time: hour.Add(time.Hour)}, {Time: hour.Add(2 * time.Hour)},
		}},
		"all predictions by team": {vision(config.Predictions, ""), []ledger.Dimension{ledger.ByTeam}, []costs.Count{
			{Time: hour, Unallocated: true}, {Time: hour, Count: 1_007_000, Key: "search"},
			{Time: hour.Add(time.Hour), Count: 5000, Unallocated: true}, {Time: hour.Add(time.Hour), Key: "search"},
			{Time: hour.Add(2 * time.Hour), Unallocated: true}, {Time: hour.Add(2 * time.Hour), Key: "search"},
		}},
	} {
		got, err := count(c.counts, hour, c.by...)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v %v, want %v", name, got, err, c.want)
		}
	}
	if want := "/curfew/units?since=2026-11-02T05%3A00%3A00Z&until=2026-11-04T05%3A00%3A00Z"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	_, err := count(vision(config.Predictions, ""), hour.Add(-time.Hour))
	if err == nil || !strings.Contains(err.Error(), "has counted since 2026-11-02T05:00:00Z") {
		t.Errorf("an hour before it counted: %v", err)
	}
	_, err = count(config.Counts{Gateway: "nowhere", Of: config.Predictions}, hour)
	if err == nil || !strings.Contains(err.Error(), `no gateway "nowhere"`) {
		t.Errorf("an unknown gateway: %v", err)
	}
	made.Schema = "curfew.other/v1"
	if _, err := count(vision(config.Predictions, ""), hour); err == nil {
		t.Error("another document was counted")
	}
}
