package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func table(t *testing.T) *Table {
	t.Helper()
	f, err := os.Open("order.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// list returns the packages of this module. Files that are built for other systems count.
func list(t *testing.T) []Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles", Module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var out []Package
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var p struct {
			ImportPath, Dir                   string
			GoFiles, CgoFiles, IgnoredGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("read the answer of go list: %v", err)
		}
		one := Package{Path: strings.TrimPrefix(p.ImportPath, Module+"/")}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			f, err := ParseFile(name, source)
			if err != nil {
				t.Fatal(err)
			}
			one.Files = append(one.Files, f)
		}
		out = append(out, one)
	}
}

// TestOrder holds every package of this module to order.txt.
func TestOrder(t *testing.T) {
	packages := list(t)
	if len(packages) < 50 {
		t.Fatalf("go list names %d packages", len(packages))
	}
	for _, v := range table(t).Check(packages) {
		t.Error(v)
	}
}

// TestOrderRefuses holds that the table refuses what must not be: each case is a file that no
// package may have.
func TestOrderRefuses(t *testing.T) {
	const own = Module + "/internal/"
	for _, tt := range []struct {
		name, pkg, file, source string
		says                    string // "" is no violation
	}{
		{"a lower package", "internal/policy", "x.go", `import "` + own + `money"`, ""},
		{"a higher package", "internal/duty", "x.go", `import "` + own + `policy"`, "internal/duty (x.go) imports github.com/curfew-dev/curfew/internal/policy: [domain]"},
		{"SQL in the domain", "internal/ledger", "x.go", `import "database/sql"`, "only store may import it"},
		{"a driver in the domain", "internal/ledger", "x.go", `import "github.com/jackc/pgx/v5"`, "[domain]"},
		{"HTTP in the domain", "internal/price", "x.go", `import "net/http/httptrace"`, "[domain]"},
		{"the transport in the domain", "internal/price", "x.go", `import "` + own + `httpclient"`, "it is in [transport]"},
		{"a cloud in the domain", "internal/finding/aws", "x.go", `import "github.com/aws/aws-sdk-go-v2/aws"`, "only cloud/aws, objectstore may import it"},
		{"flags in the domain", "internal/round", "x.go", `import "github.com/spf13/pflag"`, "may import it"},
		{"a clock in the domain", "internal/session", "x.go", "import \"time\"\nvar x = time.Now()", "imports time.Now: [domain]"},
		{"a clock by another name", "internal/session", "x.go", "import clock \"time\"\nvar x = clock.Now", "imports time.Now: [domain]"},
		{"the environment in the domain", "internal/spec", "x.go", "import \"os\"\nvar x = os.Getenv(\"X\")", "imports os.Getenv"},
		{"a time of its own", "internal/session", "x.go", "import \"time\"\nvar x time.Time", ""},
		{"a drawing planner", "internal/plan/mig", "x.go", `import "html"`, "[domain]"},
		{"a planner with an account", "internal/plan/commit", "x.go", `import "` + own + `accountplan"`, "[domain]"},
		{"a learner that sees policies", "internal/backtest/learn", "x.go", `import "` + own + `policy"`, "allows only inventory, usage"},
		{"money on anything", "internal/money", "x.go", `import "` + own + `plain"`, "[domain]"},
		{"a checkpoint on anything", "internal/checkpoint", "x.go", `import "` + own + `durable"`, "allows only lazyregexp"},
		{"a change on anything", "internal/change", "x.go", `import "` + own + `money"`, "no package of this module"},
		{"a session on an edge", "internal/session", "x.go", `import "` + own + `store"`, "it is in [edges]"},
		{"a session on a round", "internal/session", "x.go", `import "` + own + `round"`, "[domain]"},
		{"an edge on an edge", "internal/store", "x.go", `import "` + own + `notify"`, "no other edge"},
		{"a cloud on a cloud", "internal/cloud/local", "x.go", `import "` + own + `cloud/sim"`, "no other edge"},
		{"a channel on its router", "internal/notify/slack", "x.go", `import "` + own + `notify"`, ""},
		{"an edge on wiring", "internal/agent", "x.go", `import "` + own + `config"`, "it is in [configuration]"},
		{"an agent on a cloud", "internal/agent", "x.go", `import "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"`, "may import it"},
		{"a client on documents", "internal/client", "x.go", `import "` + own + `view"`, "allows only durable, httpclient"},
		{"documents on an edge", "internal/view", "x.go", `import "` + own + `store"`, "it is in [edges]"},
		{"documents that draw", "internal/view", "x.go", `import "` + own + `report"`, "it is in [reports]"},
		{"the application on commands", "internal/app/spend", "x.go", `import "github.com/spf13/cobra"`, "may import it"},
		{"the application on reports", "internal/app/spend", "x.go", `import "` + own + `report"`, "it is in [reports]"},
		{"the application downwards", "internal/app/spend", "x.go", `import "` + own + `app/runtime"`, ""},
		{"the application upwards", "internal/app/runtime", "x.go", `import "` + own + `app/spend"`, "[application]"},
		{"AWS in its one file", "internal/app/clouds", "aws.go", `import "` + own + `cloud/aws"`, ""},
		{"AWS in another file", "internal/app/clouds", "x.go", `import "` + own + `cloud/aws"`, "may import it"},
		{"AWS in commands", "internal/cli", "x.go", `import "` + own + `cloud/aws"`, "may import it"},
		{"a scheduler on a round", "internal/service", "x.go", `import "` + own + `round"`, "excepts it"},
		{"the API on a channel", "internal/api", "x.go", `import "` + own + `notify/slack"`, "it is in [edges]"},
		{"examples in their one file", "internal/config", "start.go", `import "` + Module + `/examples/policies"`, ""},
		{"examples elsewhere", "internal/config", "x.go", `import "` + Module + `/examples/policies"`, "only config/start.go"},
		{"a test tree in the product", "internal/cli", "x.go", `import "` + Module + `/test/sandbox"`, "it is in [testing]"},
		{"a suite in the product", "internal/store", "x.go", `import "` + own + `store/storetest"`, "it is in [suites]"},
		{"a suite on its edge", "internal/store/storetest", "x.go", `import "` + own + `store"`, "it is in [edges]"},
		{"a suite in a test", "test/service", "x.go", `import "` + own + `store/storetest"`, ""},
		{"a client of its own", "internal/notify", "x.go", "import \"net/http\"\nvar x http.Client", "imports net/http.Client: only httpclient may use it"},
		{"the default client", "internal/api", "x.go", "import \"net/http\"\nvar x = http.DefaultClient", "only httpclient may use it"},
		{"requests", "internal/api", "x.go", "import \"net/http\"\nvar x http.Request", ""},
		{"a retry library elsewhere", "internal/metrics/prom", "x.go", `import "github.com/hashicorp/go-retryablehttp"`, "only httpclient"},
		{"a client of Prometheus of its own", "internal/metrics", "x.go", `import "github.com/prometheus/client_golang/api/prometheus/v1"`, "metrics/httpapi is the client"},
		{"the registry of metrics", "internal/service", "x.go", `import "github.com/prometheus/client_golang/prometheus"`, ""},
		{"a program on more than commands", "cmd/curfew", "x.go", `import "` + own + `config"`, "allows only cli"},
		{"a package without a line", "internal/util", "x.go", "", "internal/util: it has no line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseFile(tt.file, []byte("package x\n"+tt.source))
			if err != nil {
				t.Fatal(err)
			}
			order := table(t)
			for _, e := range order.entries {
				e.planned = true // the other packages are not here
			}
			var got []string
			for _, v := range order.Check([]Package{{Path: tt.pkg, Files: []File{f}}}) {
				got = append(got, v.String())
			}
			if tt.says == "" && len(got) > 0 || tt.says != "" && (len(got) != 1 || !strings.Contains(got[0], tt.says)) {
				t.Errorf("violations %q, want %q", got, tt.says)
			}
		})
	}
}

func TestRejectsStaleLine(t *testing.T) {
	order, err := Read(strings.NewReader("[a] why\norder: above\nx\ny planned\nz\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := order.Check([]Package{{Path: "internal/x"}})
	if len(got) != 1 || got[0].String() != "z: line 5 of test/imports/order.txt stands for no package" {
		t.Errorf("violations %v", got)
	}
}

func TestRejectsBrokenTable(t *testing.T) {
	for name, text := range map[string]string{
		"no section":          "x\n",
		"an unknown order":    "[a] why\norder: sideways\n",
		"an unknown key":      "[a] why\nsometimes: x\n",
		"no reason":           "[a]\norder: free\n",
		"an unknown section":  "[a] why\norder: free\nimports: b\n",
		"a package twice":     "[a] why\norder: free\nx\nx\n",
		"an unknown package":  "[a] why\norder: free\nx only: y\n",
		"a word without key":  "[a] why\norder: free\nx y\n",
		"a section two times": "[a] why\norder: free\n[a] why\norder: free\n",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
