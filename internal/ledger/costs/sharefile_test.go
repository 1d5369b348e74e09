package costs

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/plan"
)

func TestReadShares(t *testing.T) {
	got, err := ReadShares("shares.csv",
		strings.NewReader("resource,workload,share,used\ni-1,train,3/8,80%\ni-1,eval,0.25,\ni-2,mig,2/7,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Shared{
		{"i-1", Share{"train", 3, 8, 4, 5}}, {"i-1", Share{"eval", 1, 4, 0, 0}}, {"i-2", Share{"mig", 2, 7, 1, 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	for _, tc := range []struct{ row, place string }{
		{"i-1,train,9/8,", "2:11"}, {"i-1,train,-1,", "2:11"}, {"i-1,train,half,", "2:11"}, {"i-1,train,1/0,", "2:11"},
		{"i-1,train,1e3,", "2:11"},
		{"i-1,train,0.5,2", "2:15"}, {",train,0.5,", "2:1"}, {"i-1,,0.5,", "2:5"},
	} {
		_, err := ReadShares("shares.csv", strings.NewReader("resource,workload,share,used\n"+tc.row+"\n"))
		var file *plan.FileError
		if !errors.As(err, &file) || !strings.HasPrefix(err.Error(), "shares.csv:"+tc.place+":") {
			t.Errorf("%q: %v, want its place %s", tc.row, err, tc.place)
		}
	}
}

// FuzzReadShares checks that all accepted shares divide a cost without a remainder.
func FuzzReadShares(f *testing.F) {
	f.Add("resource,workload,share,used\ni-1,train,3/8,80%\ni-1,eval,0.25,\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadShares("shares.csv", strings.NewReader(text))
		if err != nil {
			return
		}
		var shares []Share
		for _, s := range all {
			shares = append(shares, s.Share)
		}
		a, err := Split(1_234_567_891, shares)
		if err != nil {
			return
		}
		total := a.Unallocated
		for _, w := range a.Workloads {
			if w.Amount < 0 || w.Used+w.Idle+w.CannotJudge != w.Amount {
				t.Fatalf("%+v", w)
			}
			total += w.Amount
		}
		if total != 1_234_567_891 {
			t.Fatalf("the parts come to %s", total)
		}
	})
}
