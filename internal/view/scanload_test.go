package view

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

func written(t *testing.T, write func(io.Writer, any) error, d Scan) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLoadReadsWrittenJSON(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		if a.Cloud == "" {
			return // an audit of nothing is not a stored scan
		}
		first := written(t, WriteJSON, NewScan(a, ScanOptions{Version: "1.2.3"}))
		d, err := LoadScan(strings.NewReader(first))
		if err != nil {
			t.Fatal(err)
		}
		var second bytes.Buffer
		if err := WriteJSON(&second, d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second.String()); diff != "" {
			t.Errorf("the document changed on its way (-written +read):\n%s", diff)
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	doc := written(t, WriteJSON, NewScan(viewtest.Realistic(), ScanOptions{}))
	id := finding.ID("gpu-held", viewtest.Realistic().Findings[0].Resource.Ref())
	tests := []struct {
		name, old, with, want string
	}{
		{"empty", doc, "", "EOF"},
		{"cut off", doc, doc[:len(doc)/2], "unexpected EOF"},
		{"not a document", doc, "[]", "cannot unmarshal"},
		{"null", doc, "null", `its schema is ""`},
		{"a later schema", ScanSchema, "curfew.scan/v2", "scan again"},
		{"an unknown field", `"schema"`, `"color": 1, "schema"`, "unknown field"},
		{"something after it", doc, doc + "{}", "something follows"},
		{"a second document", doc, doc + doc, "something follows"},
		{
			"a float for an amount", `"monthly_waste_usd": "7481.20"`, `"monthly_waste_usd": 7481.20`,
			"an amount is a string",
		},
		{"a zero too many", `"monthly_waste_usd": "7481.20"`, `"monthly_waste_usd": "7481.200"`, "it is spelled"},
		{"no id", `"id": "` + id + `"`, `"id": ""`, "missing or not its own"},
		{
			"an id twice", doc,
			strings.ReplaceAll(doc, finding.ID("gpu-instance-idle", viewtest.Realistic().Findings[1].Resource.Ref()),
				id),
			"missing or not its own",
		},
		{"no rule", `"rule": "gpu-held"`, `"rule": ""`, "rule missing"},
		{"a step that is none", `"step": 1,
      "resource"`, `"step": 8,
      "resource"`, "8 is not a step"},
		{"an unknown risk", `"risk": "medium"`, `"risk": "lowish"`, "risk"},
		{"an unknown undo", `"undo": "full"`, `"undo": "maybe"`, "undo"},
		{"no confidence", `"confidence": "high"`, `"confidence": "none"`, "confidence"},
		{
			"a saving unknown without a reason", `"savings_unknown": "savings plans could not be read",`, "",
			"without a reason",
		},
		{"no lifetime", `"lifetime": "ephemeral"`, `"lifetime": ""`, "resource.lifetime missing"},
		{
			"no time", `"finished_at": "2026-07-20T09:00:38Z"`, `"finished_at": "0001-01-01T00:00:00Z"`,
			"finished_at is missing",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Replace(doc, tt.old, tt.with, 1)
			if in == doc {
				t.Fatalf("%q is not in the document", tt.old)
			}
			if tt.name == "an unknown risk" {
				in = strings.ReplaceAll(doc, tt.old, tt.with)
			}
			if _, err := LoadScan(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// FuzzLoad: what Load accepts it writes in a form that it reads as the same.
func FuzzLoadScan(f *testing.F) {
	// Small documents: the fuzzer spends its time on the reader, not on copies.
	one := viewtest.NewWorld()
	r := one.Resource(inventory.KindInstance, "i-1", "g5.xlarge", "<a>", viewtest.Ana)
	one.Charge(r, "compute", ledger.Compute, "1.50")
	one.Verdict(r, duty.Idle, "idle")
	one.Find(r, viewtest.Found{Rule: "gpu-instance-idle", Step: finding.StepIdle, Waste: "1.50", Because: "idle",
		Saving:   finding.Saving{Bounded: true, UpperBound: viewtest.USD("1.50"), Why: "plans not read"},
		Evidence: []usage.Evidence{viewtest.Measured("gpu_util_max_pct", "0", 0.99)}})
	for _, a := range []*round.Result{one.Audit(), viewtest.NewWorld().Audit()} {
		var b bytes.Buffer
		if err := WriteJSON(&b, NewScan(a, ScanOptions{})); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte(
		`{"schema":"curfew.scan/v1","cloud":"aws","started_at":"2026-07-20T11:00:00+02:00","finished_at":"2026-07-20T09:00:00Z","findings":null}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		first, err := LoadScan(bytes.NewReader(in))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteJSON(&b, first); err != nil {
			t.Fatal(err)
		}
		second, err := LoadScan(&b)
		if err != nil {
			t.Fatalf("what was read is not accepted when written: %v", err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("reading and writing changed the document:\n%s",
				cmp.Diff(first, second, cmp.AllowUnexported(money.Dollars{})))
		}
	})
}

// tree reads a document without knowing its shape.
func tree(t interface{ Fatal(...any) }, read func([]byte, any) error, doc string) any {
	var v any
	if err := read([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func readYAML(b []byte, v any) error { return yaml.Unmarshal(b, v) }

func TestYAMLIsTheSameDocument(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		if len(a.Findings) > 1000 {
			return // the other audits have every field
		}
		want := tree(t, json.Unmarshal, written(t, WriteJSON, NewScan(a, ScanOptions{})))
		got := tree(t, readYAML, written(t, WriteYAML, NewScan(a, ScanOptions{})))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("YAML differs from JSON (-json +yaml):\n%s", diff)
		}
	})
}

// TestYAMLKeepsAnyName: names come from outside and may be anything.
func TestYAMLKeepsAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-:#{}\[\],&*!|>'"%@\x60 \n\t0-9eE.~=<?]{0,8}`),
			rapid.SampledFrom([]string{
				"null", "~", "yes", "0x1f", "1_000", "2026-07-20", "<<", ".inf", "---", "? a",
				"\u2028", "\u0085", "\ufeffa",
			})).Draw(t, "name")
		w := viewtest.NewWorld()
		r := w.Resource(inventory.KindInstance, "i-1", "g5.xlarge", name, inventory.Owner{Team: name})
		w.Charge(r, "compute", ledger.Compute, "1.00")
		w.Verdict(r, duty.Idle, name)
		w.Find(r, viewtest.Found{
			Rule: "gpu-instance-idle", Step: finding.StepIdle, Waste: "1", Saving: viewtest.Saving("1"), Because: name,
		})
		var j, y bytes.Buffer
		if err := WriteJSON(&j, NewScan(w.Audit(), ScanOptions{})); err != nil {
			t.Fatal(err)
		}
		if err := WriteYAML(&y, NewScan(w.Audit(), ScanOptions{})); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tree(t, json.Unmarshal, j.String()), tree(t, readYAML, y.String())); diff != "" {
			t.Errorf("YAML differs from JSON (-json +yaml):\n%s\n%s", diff, y.String())
		}
	})
}
