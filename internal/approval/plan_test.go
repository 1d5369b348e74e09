package approval

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestPlanLines checks the order: each resource, its calls, the diff of the documents,
// commands, dollars with units, lost data and undo.
func TestPlanLines(t *testing.T) {
	saves := 199 * money.USD
	p := Plan{
		Schema: PlanSchema, Because: "10 TiB are 400 days old",
		Loses: "objects are deleted after 365 days", Undo: "none",
		Notes: []string{"a restore takes 12h"},
		Changes: []Change{
			{
				Resource: "aws/1/us-east-1/bucket/b", Verb: "put-lifecycle", Commands: []string{
					"aws s3api put-bucket-lifecycle-configuration",
				},
				Calls: []Call{
					{
						Name: "put-lifecycle", Before: `{"Rules":[{"ID":"a","Status":"Enabled"}]}`,
						Document: `{"Rules":[{"ID":"a","Status":"Disabled"}]}`,
					},
				}}},
		Costs: []Cost{{What: "saves", Amount: &saves, Unit: "a month"}, {What: "storage after", Unit: "a month"}}}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := Request{Kind: "fix", Plan: string(text)}.Shown()
	if diff := cmp.Diff(p, got); !ok || diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
	want := `because: 10 TiB are 400 days old
put-lifecycle aws/1/us-east-1/bucket/b
  call: put-lifecycle
      {
        "Rules": [
          {
            "ID": "a",
    -       "Status": "Enabled"
    +       "Status": "Disabled"
          }
        ]
      }
  by hand: aws s3api put-bucket-lifecycle-configuration
saves: $199.00 a month
storage after: not known a month
loses: objects are deleted after 365 days
undo: none
note: a restore takes 12h`
	if diff := cmp.Diff(want, strings.Join(got.Lines(), "\n")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if _, ok := (Request{Plan: `{"schema":"other"}`}).Shown(); ok {
		t.Error("another document is taken for a plan")
	}
}

// TestDiffOfEmptyDocument checks that an empty document has no removed lines.
func TestDiffOfEmptyDocument(t *testing.T) {
	for _, nothing := range []string{"", "{}", "null", " \n"} {
		if diff := cmp.Diff([]string{"+ x"}, Diff(nothing, "x")); diff != "" {
			t.Errorf("%q: %s", nothing, diff)
		}
	}
}

// TestDiffIsMinimal checks that a line added at either end is the whole diff.
func TestDiffIsMinimal(t *testing.T) {
	for _, tc := range []struct{ short, long, same string }{
		{"x\ny", "z\nx\ny", "- z|  x|  y"}, {"x\ny", "x\ny\nz", "  x|  y|- z"}, {"x\ny", "x\nz\ny", "  x|- z|  y"},
	} {
		if got := strings.Join(Diff(tc.long, tc.short), "|"); got != tc.same {
			t.Errorf("%q to %q: %s", tc.long, tc.short, got)
		}
		if got := strings.Join(Diff(tc.short, tc.long), "|"); got != strings.ReplaceAll(tc.same, "- ", "+ ") {
			t.Errorf("%q to %q: %s", tc.short, tc.long, got)
		}
	}
}

// TestDiffRestoresDocuments checks that a diff without added lines is the first document, and without
// removed lines the second.
func TestDiffRestoresDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := func(name string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 12).Draw(t, name), "\n")
		}
		a, b := document("a"), document("b")
		side := func(leave string) (out []string) {
			for _, line := range Diff(a, b) {
				if !strings.HasPrefix(line, leave) {
					out = append(out, line[2:])
				}
			}
			return out
		}
		if got := strings.Join(side("+ "), "\n"); got != a {
			t.Fatalf("before: %q, want %q", got, a)
		}
		if got := strings.Join(side("- "), "\n"); got != b {
			t.Fatalf("after: %q, want %q", got, b)
		}
	})
}
