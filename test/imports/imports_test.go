package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// list returns the packages of this module, including files for other systems.
func list(t *testing.T) []Package {
	t.Helper()
	const fields = "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles"
	cmd := exec.CommandContext(t.Context(), "go", "list", fields, Module+"/...")
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

// TestOrder checks every package of this module against order.txt.
func TestOrder(t *testing.T) {
	packages := list(t)
	if len(packages) < 50 {
		t.Fatalf("go list names %d packages", len(packages))
	}
	for _, v := range table(t).Check(packages) {
		t.Error(v)
	}
}

// TestOrderRefuses checks that the table refuses invalid files, one per case.
func TestOrderRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, pkg, file string
		source          string // or the only package that it imports
		says            string // "" is no violation
	}{
		{"a lower package", "internal/policy", "x.go", "internal/money", ""},
		{
			"a higher package", "internal/duty", "x.go", "internal/policy",
			"internal/duty (x.go) imports " + Module + "/internal/policy: [domain]",
		},
		{"SQL in the domain", "internal/ledger", "x.go", "database/sql", "only store may import it"},
		{"a driver in the domain", "internal/ledger", "x.go", "github.com/jackc/pgx/v5", "[domain]"},
		{"HTTP in the domain", "internal/price", "x.go", "net/http/httptrace", "[domain]"},
		{"the transport in the domain", "internal/price", "x.go", "internal/httpclient", "it is in [transport]"},
		{
			"a cloud in the domain", "internal/finding/aws", "x.go", "github.com/aws/aws-sdk-go-v2/aws",
			"only cloud/aws, objectstore may import it",
		},
		{"flags in the domain", "internal/round", "x.go", "github.com/spf13/pflag", "may import it"},
		{
			"a clock in the domain", "internal/session", "x.go", "import \"time\"\nvar x = time.Now()",
			"imports time.Now: [domain]",
		},
		{
			"a clock by another name", "internal/session", "x.go", "import clock \"time\"\nvar x = clock.Now",
			"imports time.Now: [domain]",
		},
		{
			"the environment in the domain", "internal/spec", "x.go", "import \"os\"\nvar x = os.Getenv(\"X\")",
			"imports os.Getenv",
		},
		{"a time of its own", "internal/session", "x.go", "import \"time\"\nvar x time.Time", ""},
		{"a drawing planner", "internal/plan/mig", "x.go", "html", "[domain]"},
		{"a planner with an account", "internal/plan/commit", "x.go", "internal/accountplan", "[domain]"},
		{
			"a learner that sees policies", "internal/backtest/learn", "x.go", "internal/policy",
			"allows only inventory, usage",
		},
		{"money on anything", "internal/money", "x.go", "internal/plain", "[domain]"},
		{"a checkpoint on anything", "internal/checkpoint", "x.go", "internal/durable", "allows only lazyregexp"},
		{"a change on anything", "internal/change", "x.go", "internal/money", "no package of this module"},
		{"a session on an edge", "internal/session", "x.go", "internal/store", "it is in [edges]"},
		{"a session on a round", "internal/session", "x.go", "internal/round", "[domain]"},
		{"an edge on an edge", "internal/store", "x.go", "internal/notify", "no other edge"},
		{"a cloud on a cloud", "internal/cloud/local", "x.go", "internal/cloud/sim", "no other edge"},
		{"a channel on its router", "internal/notify/slack", "x.go", "internal/notify", ""},
		{"an edge on wiring", "internal/agent", "x.go", "internal/config", "it is in [configuration]"},
		{
			"an agent on a cloud", "internal/agent", "x.go", "github.com/aws/aws-sdk-go-v2/feature/ec2/imds",
			"may import it",
		},
		{"a client on documents", "internal/client", "x.go", "internal/view", "allows only durable, httpclient"},
		{"documents on an edge", "internal/view", "x.go", "internal/store", "it is in [edges]"},
		{"documents that draw", "internal/view", "x.go", "internal/report", "it is in [reports]"},
		{"the application on commands", "internal/app/spend", "x.go", "github.com/spf13/cobra", "may import it"},
		{"the application on reports", "internal/app/spend", "x.go", "internal/report", "it is in [reports]"},
		{"the application downwards", "internal/app/spend", "x.go", "internal/app/runtime", ""},
		{"the application upwards", "internal/app/runtime", "x.go", "internal/app/spend", "[application]"},
		{"AWS in its one file", "internal/app/clouds", "aws.go", "internal/cloud/aws", ""},
		{"AWS in another file", "internal/app/clouds", "x.go", "internal/cloud/aws", "may import it"},
		{"AWS in commands", "internal/cli", "x.go", "internal/cloud/aws", "may import it"},
		{"the scheduler on a round", "internal/app/scheduler", "x.go", "internal/round", "excepts it"},
		{"a scheduler of a service on a round", "internal/app/scheduler", "x.go", "internal/round", "excepts it"},
		{"the API on a channel", "internal/api", "x.go", "internal/notify/slack", "it is in [edges]"},
		{"examples in their one file", "internal/config", "start.go", "examples/policies", ""},
		{"examples elsewhere", "internal/config", "x.go", "examples/policies", "only config/start.go"},
		{"a test tree in the product", "internal/cli", "x.go", "test/sandbox", "it is in [testing]"},
		{"a suite in the product", "internal/store", "x.go", "internal/store/storetest", "it is in [suites]"},
		{"a suite on its edge", "internal/store/storetest", "x.go", "internal/store", "it is in [edges]"},
		{"a suite in a test", "test/service", "x.go", "internal/store/storetest", ""},
		{
			"a client of its own", "internal/notify", "x.go", "import \"net/http\"\nvar x http.Client",
			"imports net/http.Client: only httpclient may use it",
		},
		{
			"the default client", "internal/api", "x.go", "import \"net/http\"\nvar x = http.DefaultClient",
			"only httpclient may use it",
		},
		{"requests", "internal/api", "x.go", "import \"net/http\"\nvar x http.Request", ""},
		{
			"a retry library elsewhere", "internal/metrics/prom", "x.go", "github.com/hashicorp/go-retryablehttp",
			"only httpclient",
		},
		{
			"a client of Prometheus of its own", "internal/metrics", "x.go",
			"github.com/prometheus/client_golang/api/prometheus/v1", "metrics/httpapi is the client",
		},
		{
			"the registry of metrics", "internal/app/scheduler", "x.go",
			"github.com/prometheus/client_golang/prometheus", "",
		},
		{"a program on more than commands", "cmd/curfew", "x.go", "internal/config", "allows only cli"},
		{"a package without a line", "internal/util", "x.go", "", "internal/util: it has no line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := tt.source
			if source != "" && !strings.Contains(source, "\n") {
				if regexp.MustCompile(`^(internal|examples|test)/`).MatchString(source) {
					source = Module + "/" + source
				}
				source = fmt.Sprintf("import %q", source)
			}
			f, err := ParseFile(tt.file, []byte("package x\n"+source))
			if err != nil {
				t.Fatal(err)
			}
			order := table(t)
			for _, e := range order.entries {
				e.planned = true // the other packages do not exist here
			}
			var got []string
			for _, v := range order.Check([]Package{{Path: tt.pkg, Files: []File{f}}}) {
				got = append(got, v.String())
			}
			if tt.says == "" && len(got) > 0 || tt.says != "" &&
				(len(got) != 1 || !strings.Contains(got[0], tt.says)) {
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
