package report

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/round"
)

var update = flag.Bool("update", false, "write the golden files anew")

// render is any of the outputs.
type render = func(io.Writer, *round.Result, Options) error

func outputs() map[string]render {
	return map[string]render{"table": Table, "json": JSON, "yaml": YAML, "csv": CSV, "md": Markdown, "html": HTML}
}

func text(t *testing.T, r render, a *round.Result, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := r(&b, a, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	tests := []struct {
		file   string
		render render
		audit  *round.Result
		o      Options
	}{
		{"realistic.json", JSON, realistic(), Options{}},
		{"realistic.yaml", YAML, realistic(), Options{}},
		{"realistic.csv", CSV, realistic(), Options{}},
		{"realistic.md", Markdown, realistic(), Options{}},
		{"realistic.html", HTML, realistic(), Options{Top: 4}},
		{"realistic.txt", Table, realistic(), Options{}},
		{"realistic-60.txt", Table, realistic(), Options{Width: 20}},
		{"realistic-140-all.txt", Table, realistic(), Options{Width: 140, All: true}},
		{"realistic-color.txt", Table, realistic(), Options{Color: true, Top: 3}},
		{"hostile.txt", Table, hostile(), Options{All: true}},
		{"hostile.csv", CSV, hostile(), Options{}},
		{"hostile.md", Markdown, hostile(), Options{}},
		{"unpriced.txt", Table, allUnpriced(), Options{}},
		{"unpriced.json", JSON, allUnpriced(), Options{}},
		{"nothing-found.txt", Table, nothingFound(), Options{}},
		{"nothing-found.md", Markdown, nothingFound(), Options{}},
		{"no-resources.txt", Table, newWorld().audit(), Options{}},
		{"no-resources.json", JSON, newWorld().audit(), Options{}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			tt.o.Version = "1.2.3"
			got := text(t, tt.render, tt.audit, tt.o)
			path := filepath.Join("testdata", "golden", tt.file)
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the output differs from %s (-want +got); run with -update if that is meant:\n%s", path, diff)
			}
		})
	}
}

var errFull = errors.New("disk full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestOutputsReportWriteErrors(t *testing.T) {
	for name, r := range outputs() {
		t.Run(name, func(t *testing.T) {
			if err := r(full{}, realistic(), Options{}); !errors.Is(err, errFull) {
				t.Errorf("got %v, want %v", err, errFull)
			}
		})
	}
}

func TestOutputsAreRepeatable(t *testing.T) {
	for name, r := range outputs() {
		t.Run(name, func(t *testing.T) {
			eachAudit(t, func(t *testing.T, a *round.Result) {
				if first, second := text(t, r, a, Options{All: true}), text(t, r, a, Options{All: true}); first != second {
					t.Error("the same audit gave two different outputs")
				}
			})
		})
	}
}
