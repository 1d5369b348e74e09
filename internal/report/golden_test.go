package report

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

var update = flag.Bool("update", false, "write the golden files again")

// render is one of the outputs.
type render = func(io.Writer, view.Scan, Options) error

func outputs() map[string]render {
	return map[string]render{"table": Table, "json": asJSON, "yaml": asYAML, "csv": CSV, "md": Markdown, "html": HTML}
}

func asJSON(w io.Writer, d view.Scan, _ Options) error { return view.WriteJSON(w, d.Public()) }

func asYAML(w io.Writer, d view.Scan, _ Options) error { return view.WriteYAML(w, d.Public()) }

func text(t *testing.T, r render, a *round.Result, o Options) string {
	t.Helper()
	var b bytes.Buffer
	o.Kept = true
	if err := r(&b, view.NewScan(a, view.ScanOptions{Version: "1.2.3"}), o); err != nil {
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
		{"realistic.json", asJSON, viewtest.Realistic(), Options{}},
		{"realistic.yaml", asYAML, viewtest.Realistic(), Options{}},
		{"realistic.csv", CSV, viewtest.Realistic(), Options{}},
		{"realistic.md", Markdown, viewtest.Realistic(), Options{}},
		{"realistic.html", HTML, viewtest.Realistic(), Options{Top: 4}},
		{"realistic.txt", Table, viewtest.Realistic(), Options{}},
		{"realistic-60.txt", Table, viewtest.Realistic(), Options{Width: 20}},
		{"realistic-140-all.txt", Table, viewtest.Realistic(), Options{Width: 140, All: true}},
		{"realistic-color.txt", Table, viewtest.Realistic(), Options{Color: true, Top: 3}},
		{"hostile.txt", Table, viewtest.Hostile(), Options{All: true}},
		{"hostile.csv", CSV, viewtest.Hostile(), Options{}},
		{"hostile.md", Markdown, viewtest.Hostile(), Options{}},
		{"unpriced.txt", Table, viewtest.AllUnpriced(), Options{}},
		{"unpriced.json", asJSON, viewtest.AllUnpriced(), Options{}},
		{"nothing-found.txt", Table, viewtest.NothingFound(), Options{}},
		{"realistic-summary.md", Summary, viewtest.Realistic(), Options{}},
		{"hostile-summary.md", Summary, viewtest.Hostile(), Options{}},
		{"nothing-found.md", Markdown, viewtest.NothingFound(), Options{}},
		{"no-resources.txt", Table, viewtest.NewWorld().Audit(), Options{}},
		{"no-resources.json", asJSON, viewtest.NewWorld().Audit(), Options{}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			got := text(t, tt.render, tt.audit, tt.o)
			if filepath.Ext(tt.file) == ".html" {
				// split the single line of a page into elements for readable differences
				got = strings.ReplaceAll(got, "><", ">\n<")
			}
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
			if err := r(full{}, view.NewScan(viewtest.Realistic(), view.ScanOptions{}),
				Options{}); !errors.Is(err, errFull) {
				t.Errorf("got %v, want %v", err, errFull)
			}
		})
	}
}

func TestOutputsAreRepeatable(t *testing.T) {
	for name, r := range outputs() {
		t.Run(name, func(t *testing.T) {
			viewtest.Each(t, func(t *testing.T, a *round.Result) {
				if first, second := text(t, r, a, Options{All: true}), text(t, r, a,
					Options{All: true}); first != second {
					t.Error("the same audit gave two different outputs")
				}
			})
		})
	}
}
