package estimate

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// TestOpenCosts: unknown costs that may be large are separate from small omissions.
func TestOpenCosts(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: curfew.job/v1\nname: x\nresources: {instance_type: g5.xlarge}\nregions: " +
		"[us-east-1]\nrun: train\n"
	for _, tc := range []struct{ name, rest, open string }{
		{
			"sizes of what is kept",
			"max_runtime: 2h\ncheckpoint: {dir: /c, to: \"s3://near/c\"}\nartifacts: {dir: /o, to: \"s3://near/o\"}\n",
			"",
		},
		{"a bucket in an unknown region", "max_runtime: 2h\ndata: [\"s3://somewhere/d\"]\n", ""},
		{"data from afar", "max_runtime: 2h\ndata: [\"s3://far/d\"]\n", "s3://far/d"},
		{"work that nothing ends", "duration: 1m\n", "x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := spec.Parse("job.yaml", []byte(head+tc.rest))
			if err != nil {
				t.Fatal(err)
			}
			e, err := New(s, book, Params{
				Now:         time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC),
				DataRegions: map[string]string{"near": "us-east-1", "far": "eu-west-1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Unknown) == 0 || (tc.open == "") != (len(e.Open) == 0) {
				t.Errorf("unknown %q, of which open %q", e.Unknown, e.Open)
			}
			if tc.open != "" && !strings.Contains(strings.Join(e.Open, " "), tc.open) {
				t.Errorf("open is %q, want %s", e.Open, tc.open)
			}
		})
	}
}
