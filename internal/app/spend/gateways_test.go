package spend

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
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
